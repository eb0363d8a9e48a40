"""Inquiries to a federation: each is planned, refused if its budget cannot measure it, and asked as one release."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Any, Protocol, cast

import numpy as np

from dpcore.accounting.local_response import LocalResponse
from dpcore.declared import names_of
from dpcore.errors import ConfigurationError
from dpcore.estimators.oracle import WHOLE
from dpcore.evaluation.descriptive.comparison import Compare
from dpcore.evaluation.descriptive.correlation import Correlate
from dpcore.evaluation.descriptive.crosstab import Crosstab
from dpcore.evaluation.descriptive.description import MISSING, USUAL_CELLS, USUAL_LEVELS, Describe
from dpcore.evaluation.descriptive.divisions import Edges
from dpcore.evaluation.descriptive.inquiry import CountsInquiry, Inquiry
from dpcore.evaluation.descriptive.levels import Levels
from dpcore.evaluation.descriptive.result import Figure, Result, Table
from dpcore.evaluation.descriptive.survival import Survival
from dpcore.evaluation.intervals import CellNoise
from dpcore.numbers.rationals import Exact, exact, upper
from dpcore.predicates.evaluation import sums
from dpcore.predicates.expressions import Predicate
from dpcore.queries.moments import MomentsQuery
from dpcore.queries.statistic import StatisticQuery
from dpcore.rados.distribution import Moments, NumberMoments
from dpcore.records.encoding import store
from dpcore.records.feature_map import FeatureMap
from dpcore.records.records import Records
from dpcore.records.schema import Schema
from dpcore.statistics.accuracy import Estimates, SharedNoise
from learner.inquiry_pictures import inquiry_picture
from learner.planning import Plan
from radobase.keywords import knows_keywords
from radobase.presentation.notebook import Picture, fragment
from radobase.printing import columns

_MADE_UP_ROWS = 4096
_MADE_UP_BITS = 16


@dataclass(frozen=True, eq=False)
class PlannedInquiry:
    """What an inquiry costs, and how exact its answer would be. Nothing was asked."""

    plan: Plan
    confidence: float
    predicates: int
    """0 for moments."""
    noise_rows: float
    """With this confidence the noise on one count is at most this; of moments, the largest standard deviation."""
    rows: int
    """That parties state; 0 if none does."""
    expected: Result | None
    """The answer on made-up rows; None without stated rows."""
    promises: tuple[str, ...] = ()
    """What the answer will say, a sentence each."""

    def widths(self) -> Table:
        """The longest expected half-width of each quantity of each column."""
        assert self.expected is not None, "there are stated rows"
        largest: dict[tuple[str, str], tuple[float, str]] = {}
        for each in self.expected.figures:
            width = each.half_width
            if width is not None and each.quantity != MISSING:
                key = each.column or "all", each.quantity
                largest[key] = max(largest.get(key, (-1.0, "")), (width, _written(each, width)))
        rows = tuple((*key, words) for key, (_, words) in largest.items())
        return Table("Expected intervals", ("column", "quantity", "+-"), rows, (2,))

    def sentences(self) -> list[str]:
        """The plan, then what its noise means, each a sentence."""
        said = self.plan.sentences()
        if self.predicates:
            small = "A group or a level with fewer rows than that cannot be told from an empty one."
            reach = f"With probability {self.confidence:g} the noise on one count is at most"
            said.append(f"{reach} {upper(self.noise_rows, 1)} rows. {small}")
        said += self.promises
        if self.expected is None:
            return [*said, "No party states its rows, so no interval can be expected. Nothing was asked."]
        assumed = (
            f"The intervals expect {self.rows} rows whose values are spread evenly between the schema's bounds, and "
            "over its values; where numbers vary less, means are more exact, and correlations less. Nothing was asked."
        )
        return [*said, assumed]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        expected = None if self.expected is None else self.expected.to_dict()["figures"]
        cost = self.plan.cost
        return {
            "ciphertexts": self.plan.ciphertexts,
            "upload_bytes_per_party": self.plan.upload_bytes_per_party,
            "epsilon": None if cost is None else cost.epsilon,
            "epsilon_if_others_collude": None if cost is None else cost.epsilon_if_others_collude,
            "delta": float(self.plan.delta),
            "predicates": self.predicates,
            "noise_rows": self.noise_rows,
            "rows": self.rows,
            "expected": expected,
            "promises": list(self.promises),
        }

    def __repr__(self) -> str:
        found = None if self.expected is None else self.widths()
        table = [] if found is None else [found.title, *columns(found.header, found.rows, right=found.numbers), ""]
        return "\n".join([*table, *self.sentences()])

    def _repr_html_(self) -> str:
        tables = () if self.expected is None else (self.widths(),)
        return fragment("Plan", self.sentences(), [(each.title, each.header, each.rows) for each in tables])


def _written(figure: Figure, width: float) -> str:
    match figure.kind:
        case "share" | "points":
            return f"{100 * width:.2f} percentage points"
        case "rows":
            return f"{width:.0f} rows"
        case _:
            return f"{width:.4g}"


class ShownResult(Result):
    """A result that notebooks show as tables."""

    @classmethod
    def of(cls, result: Result) -> "ShownResult":
        """The same result."""
        return cls(**{field.name: getattr(result, field.name) for field in fields(result)})

    def __repr__(self) -> str:
        return self.text

    def plot(self) -> Picture:
        """The curves of survival, or the intervals of other inquiries, as a picture that notebooks show.

        Raises ConfigurationError if nothing has an interval.
        """
        if (found := inquiry_picture(self)) is None:
            raise ConfigurationError("nothing was measured, so there is no picture: ask with a larger epsilon")
        return Picture(found)

    def _repr_html_(self) -> str:
        privacy = [] if self.privacy is None else self.privacy.short_sentences()
        tables = [(each.title, each.header, each.rows) for each in self.tables]
        drawn = inquiry_picture(self) if self.inquiry == Survival.name else None
        return fragment(self.inquiry, [*self.sentences, *privacy], tables, [] if drawn is None else [drawn])


class PlansInquiries(Protocol):
    """What of an oracle plans an inquiry: `learner.budgeted_oracle.BudgetedOracle`."""

    @property
    def schema(self) -> Schema:
        """How rows become coordinates."""
        ...

    @property
    def rows(self) -> int:
        """Of all parties, as they state them."""
        ...

    @property
    def epsilon(self) -> Fraction:
        """Of the whole budget."""
        ...

    def planned(self, predicates: Sequence[Predicate | str], *, part: Fraction = WHOLE) -> Plan:
        """The plan of a batch."""
        ...

    def planned_moments(
        self, *, part: Fraction = WHOLE, norm_bound: Fraction | None = None, feature_map: FeatureMap | None = None
    ) -> Plan:
        """The plan of moments."""
        ...


def planned_inquiry(inquiry: Inquiry, oracle: PlansInquiries, part: Exact = WHOLE) -> PlannedInquiry:
    """Plan it; sends nothing. Raises PlanError if the budget cannot measure it, and what planning raises."""
    part = exact(part, "part")
    inquiry.check(oracle.schema)
    match inquiry:
        case CountsInquiry():
            return _planned_counts(inquiry, oracle, part)
        case Correlate():
            return _planned_moments(inquiry, oracle, part)
        case _:
            raise AssertionError(inquiry)


def _planned_counts(inquiry: CountsInquiry, oracle: PlansInquiries, part: Fraction) -> PlannedInquiry:
    schema = oracle.schema
    batch = inquiry.layout(schema).batch
    plan, rows = oracle.planned(batch, part=part), oracle.rows
    kind = cast("StatisticQuery", plan.query.kind)
    assert not isinstance(kind.noise, LocalResponse), "it was planned with shares of noise"
    noise = SharedNoise(kind.noise, _parties(plan), kind.unit_bits(plan.query.encoding.fraction_bits))
    on_cells = CellNoise(noise.deviation, noise.copies)
    inquiry.check_measurable(schema, on_cells, rows, float(oracle.epsilon * part))
    reach = on_cells.half_width(1, 1.0 - inquiry.confidence)
    expected = inquiry.read(schema, _expected(batch, schema, noise, rows)) if rows else None
    promises = inquiry.promises(schema, on_cells)
    return PlannedInquiry(plan, inquiry.confidence, len(batch), reach, rows, expected, promises)


def _planned_moments(inquiry: Correlate, oracle: PlansInquiries, part: Fraction) -> PlannedInquiry:
    schema = oracle.schema
    plan = oracle.planned_moments(
        part=part, norm_bound=inquiry.norm_bound(schema), feature_map=inquiry.feature_map(schema)
    )
    rows = oracle.rows
    query, kind = plan.query, cast("MomentsQuery", plan.query.kind)
    nothing = np.zeros(kind.shape(query.d), dtype=np.int64)
    bits, parties = query.encoding.fraction_bits, _parties(plan)
    planned = kind.moments(nothing, bits, rows=max(rows, 1), parties=parties, held_back=query.held_back)
    # Independent columns that are spread evenly between -1 and 1.
    products = rows * np.diag([1.0 / 3.0] * (planned.d - 1) + [1.0])
    noise = float(planned.product_noise[:-1, :-1].max())
    if not rows:
        return PlannedInquiry(plan, inquiry.confidence, 0, noise, rows, None)
    even: Moments | NumberMoments = replace(planned, product_sum=products)
    if isinstance(even, NumberMoments):
        even = replace(even, square_sum=rows / 3.0)
    inquiry.check_measurable_moments(even, float(oracle.epsilon * part))
    return PlannedInquiry(plan, inquiry.confidence, 0, noise, rows, inquiry.read_moments(schema, even))


def _parties(plan: Plan) -> int:
    return len(plan.party_rows or ()) or plan.query.cohort_min


def _expected(batch: Sequence[Predicate], schema: Schema, noise: SharedNoise, rows: int) -> Estimates:
    """The means over made-up rows, which are spread evenly, as if they were an answer over so many rows."""
    random = np.random.default_rng(0)
    drawn = [group.draw(random, _MADE_UP_ROWS) for group in schema.groups]
    bias = [np.ones((_MADE_UP_ROWS, 1))] if schema.bias else []
    labels = schema.label.coding.spread(random.random(_MADE_UP_ROWS))
    usable = np.ones(_MADE_UP_ROWS, dtype=np.bool_)
    records = Records(store(np.column_stack([*drawn, *bias])), labels, usable, coding=schema.label.coding)
    means = np.ldexp(sums(batch, schema, records, _MADE_UP_BITS).astype(np.float64), -_MADE_UP_BITS) / _MADE_UP_ROWS
    return Estimates(
        means,
        rows,
        0.95,
        sampling=0.0,
        quantisation=0.0,
        noise=0.0,
        deviation=noise.deviation / rows,
        distribution=noise,
    )


class Inquiring:
    """The inquiries of an oracle with a budget, each as one release that takes `part` of it."""

    def inquire(self, inquiry: Inquiry, *, part: Exact = WHOLE) -> Result:
        """Ask an inquiry, if its budget can measure it.

        Raises PlanError before anything is asked if it cannot, and what the oracle raises.
        """
        oracle = cast("Any", self)
        planned_inquiry(inquiry, oracle, part)
        found = inquiry.ask(oracle, exact(part, "part"))
        return ShownResult.of(found.with_privacy(oracle.answers[-1].statement))

    def planned_inquiry(self, inquiry: Inquiry, *, part: Exact = WHOLE) -> PlannedInquiry:
        """The cost and the expected intervals; sends nothing. Raises as `inquire` does."""
        return planned_inquiry(inquiry, cast("Any", self), part)


class InquiringFederation:
    """The inquiries of a federation, each as one release that costs (epsilon, delta) at most.

    epsilon, delta: as of `Federation.statistic`. Raises as `Inquiring.inquire` does, and ConfigurationError.
    """

    @knows_keywords
    def inquire(self, inquiry: Inquiry, *, epsilon: Exact, delta: Exact = Fraction(1, 10**6)) -> Result:
        """Ask an inquiry, if its budget can measure it."""
        found: Result = cast("Any", self).within(epsilon, delta).inquire(inquiry)
        return found

    @knows_keywords
    def planned_inquiry(self, inquiry: Inquiry, *, epsilon: Exact, delta: Exact = Fraction(1, 10**6)) -> PlannedInquiry:
        """The cost and the expected intervals; sends nothing."""
        found: PlannedInquiry = cast("Any", self).within(epsilon, delta).planned_inquiry(inquiry)
        return found

    @knows_keywords
    def describe(
        self,
        columns: str | Sequence[str] = (),
        *,
        by: str | None = None,
        edges: Edges | None = None,
        cells: int = USUAL_CELLS,
        levels: Sequence[float] = USUAL_LEVELS,
        confidence: float = 0.95,
        together: bool = False,
        epsilon: Exact,
        delta: Exact = Fraction(1, 10**6),
    ) -> Result:
        """Rows, missing cells, means, standard deviations, quantiles and shares of columns, also by group.

        columns: one or several, empty for all. by: a column or a predicate. edges, cells, levels: see
        `dpcore.evaluation.descriptive.description.Describe`.
        """
        asked = Describe(
            columns=names_of(columns), by=by, edges=edges or {}, cells=cells, levels=tuple(levels),
            confidence=confidence, together=together,
        )  # fmt: skip
        return self.inquire(asked, epsilon=epsilon, delta=delta)

    @knows_keywords
    def crosstab(
        self,
        down: str,
        across: str,
        *,
        edges: Edges | None = None,
        confidence: float = 0.95,
        together: bool = False,
        epsilon: Exact,
        delta: Exact = Fraction(1, 10**6),
    ) -> Result:
        """Counts and shares of two columns or predicates, a test of independence, and of 2 x 2 cells an odds ratio."""
        asked = Crosstab(down=down, across=across, edges=edges or {}, confidence=confidence, together=together)
        return self.inquire(asked, epsilon=epsilon, delta=delta)

    @knows_keywords
    def compare(
        self,
        column: str,
        *,
        by: str,
        reference: str | None = None,
        edges: Edges | None = None,
        confidence: float = 0.95,
        together: bool = False,
        epsilon: Exact,
        delta: Exact = Fraction(1, 10**6),
    ) -> Result:
        """Differences of means, or of shares, between each group and the reference, by default the last one."""
        asked = Compare(
            column=column, by=by, reference=reference, edges=edges or {}, confidence=confidence, together=together
        )
        return self.inquire(asked, epsilon=epsilon, delta=delta)

    @knows_keywords
    def levels(
        self,
        column: str | None = None,
        *,
        at_least: int = 0,
        extend: Sequence[str] = (),
        confidence: float = 0.95,
        epsilon: Exact,
        delta: Exact = Fraction(1, 10**6),
    ) -> Result:
        """The frequent levels of the label or of a category, among the candidates that the schema lists.

        at_least: in rows. confidence: of all candidates together. The piece of a schema is `facts["schema"]`. See
        `dpcore.evaluation.descriptive.levels`.
        """
        asked = Levels(column=column, at_least=at_least, extend=tuple(extend), confidence=confidence)
        return self.inquire(asked, epsilon=epsilon, delta=delta)

    @knows_keywords
    def survival(
        self,
        *,
        by: str | None = None,
        edges: Edges | None = None,
        confidence: float = 0.95,
        together: bool = False,
        epsilon: Exact,
        delta: Exact = Fraction(1, 10**6),
    ) -> Result:
        """Survival curves, medians and restricted means of a label that is a time to an event, by group, and a test."""
        asked = Survival(by=by, edges=edges or {}, confidence=confidence, together=together)
        return self.inquire(asked, epsilon=epsilon, delta=delta)

    @knows_keywords
    def correlate(
        self,
        columns: str | Sequence[str] = (),
        *,
        components: int = 2,
        confidence: float = 0.95,
        together: bool = False,
        epsilon: Exact,
        delta: Exact = Fraction(1, 10**6),
    ) -> Result:
        """Correlations and principal components of numbers, booleans and the label; columns: empty for all of them."""
        asked = Correlate(columns=names_of(columns), components=components, confidence=confidence, together=together)
        return self.inquire(asked, epsilon=epsilon, delta=delta)
