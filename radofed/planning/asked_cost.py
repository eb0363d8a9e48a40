"""The cost of what an estimator asks, or of statistics, as data and as sentences."""

from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any

from dpcore.accounting.words import coalition, figures
from dpcore.errors import ConfigurationError, PlanError
from dpcore.numbers.rationals import lower_digits, rounded_up, upper
from dpcore.queries.statement import PrivacyStatement
from dpcore.statistics.accuracy import Estimates
from learner.budgeted_oracle import BudgetedOracle
from learner.estimators import make_estimator
from learner.expected_coefficients import few_coefficients
from learner.federation import Federation
from learner.vanishing import Vanishing
from radobase.presentation.words import effort_words
from radofed.planning.asked_queries import AskRequest, PlannedAnswer, PlannedParties, what_can_be_asked
from radofed.planning.design_cost import MOST_PLANNED_ROWS, PLAN_KEYS, seconds_of
from radofed.planning.remedies import first_in, first_that_helps, larger_epsilon, more_rows
from radofed.planning.signal import AskedSignal, Signal, measured, signal_of_all

_LEAST_PARTIES = 2
_ONE = Fraction(1)
_ADVICE = ("feasible", "reason", "suggestion", "warning", "coefficients_warning")
_STATED = ("epsilon", "delta", "epsilon_if_others_collude", "unit")
_TOLERANCE = ("confidence", "tolerance", "sampling", "quantisation", "noise")


@dataclass(frozen=True)
class AskedCost:
    """The cost of a plan within one budget, or why it is not possible."""

    request: AskRequest
    feasible: bool
    answers: tuple[PlannedAnswer, ...] = ()
    """Its queries, in order; of an estimator that may stop early, those over made-up rows."""
    at_most: int = 0
    """How many there may be."""
    honest_parties: int | None = None
    statement: PrivacyStatement | None = None
    """Of all answers and of the budget that is left."""
    tolerances: Estimates | None = None
    """The half-widths of statistics by their sources, None for an estimator."""
    notes: tuple[str, ...] = ()
    """What the sizes and the budget make an estimator leave out, such as curves; none depends on made-up rows."""
    signal: Signal | None = None
    warning: str | None = None
    reason: str | None = None
    suggestion: str | None = None
    """As in `radofed.planning.Cost`."""
    coefficients_warning: str | None = None
    """That the budget will measure few coefficients of an estimator that states them."""
    vanishing: Vanishing | None = None
    """What it costs in each query that members may vanish, as in its first; None if none may."""

    def to_dict(self) -> dict[str, Any]:
        """Every figure by name, in JSON's types, with all keys of a design's plan."""
        request, said, found = self.request, self.statement, self.tolerances
        return {
            **PLAN_KEYS,
            **{name: getattr(self, name) for name in _ADVICE},
            **({} if said is None else {name: getattr(said, name) for name in _STATED}),
            "party_rows": list(request.party_rows),
            "assumptions": [] if said is None else list(said.assumptions),
            **({} if self.signal is None else self.signal.to_dict()),
            "estimator": request.estimator,
            "predicates": list(request.predicates),
            "coordinates": request.schema.d,
            "answers": [asdict(answer) for answer in self.answers],
            "answers_at_most": self.at_most,
            "notes": list(self.notes),
            "honest_parties": self.honest_parties,
            "vanishing": None if self.vanishing is None else self.vanishing.to_dict(),
            "ciphertexts": self._ciphertexts,
            "upload_bytes_per_party": self._upload_bytes,
            "estimated_seconds": self._seconds,
            **({} if found is None else {name: getattr(found, name) for name in _TOLERANCE}),
        }

    @property
    def questions(self) -> tuple[Any, ...]:
        """What is asked, whatever the noise: kinds and numbers of values."""
        return tuple((answer.kind, answer.values) for answer in self.answers)

    @property
    def _ciphertexts(self) -> int:
        return sum(answer.ciphertexts for answer in self.answers)

    @property
    def _upload_bytes(self) -> int:
        return sum(answer.upload_bytes_per_party for answer in self.answers)

    @property
    def _seconds(self) -> float:
        request = self.request
        each = (seconds_of(a.ciphertexts, len(request.party_rows), request.key_bits) for a in self.answers)
        return sum(each)

    def sentences(self) -> list[str]:
        """The cost as sentences."""
        request = self.request
        parties, noun = len(request.party_rows), request.noun
        head = f"A plan of {request.what}, over {parties} parties with {request.rows:,} {noun}s in total."
        if self.statement is None or self.signal is None:
            return [head, f"This is not possible: {self.reason}. What would work: {self.suggestion}."]
        said = self.statement
        assert said.epsilon is not None
        assert said.epsilon_if_others_collude is not None
        assert said.delta is not None
        others = coalition(f"all but {self.honest_parties} of the parties")
        privacy = (
            f"All answers in total: {figures(said.epsilon, said.epsilon_if_others_collude, said.delta, others)}, for "
            f"{said.unit}."
        )
        noise = self.signal.sentence() if self.warning is None else f"Warning: {self.warning}"
        few = [] if self.coefficients_warning is None else [f"Warning: {self.coefficients_warning}"]
        effort = effort_words(
            self._ciphertexts, self._upload_bytes, request.key_bits, self._seconds, without="the sums over rows"
        )
        assumed = (f"Assumed: {text}" for text in said.assumptions)
        notes = (f"Note: {text}." for text in self.notes)
        vanishing = [] if self.vanishing is None else self.vanishing.sentences()
        asked = [*notes, *self._answer_words(), privacy, *self._tolerance_words(), noise, *vanishing]
        return [head, *asked, *few, effort, *assumed]

    def _answer_words(self) -> list[str]:
        """The queries, those in succession that are alike in one sentence."""
        lines: list[str] = []
        first = 0
        for place, answer in enumerate(self.answers, start=1):
            last = place == len(self.answers)
            if last or _alike(self.answers[place]) != _alike(answer):
                count = place - first
                many = f"{count} times: " if count > 1 else ""
                lines.append(
                    f"It asks {many}{answer.words}; {answer.values:,} values with noise of at least "
                    f"{lower_digits(answer.noise_sd, 4)}."
                )
                first = place
        if self.at_most > len(self.answers):
            lines.append(
                f"Over the parties' rows there may be up to {self.at_most} such queries; the whole budget counts."
            )
        return lines

    def _tolerance_words(self) -> list[str]:
        found = self.tolerances
        if found is None:
            return []
        words = (
            f"Each estimate is within {upper(found.tolerance, 5)} of the truth with probability {found.confidence:g} "
            f"for all together: sampling {upper(found.sampling, 5)}, quantisation "
            f"{upper(found.quantisation, 5)}, noise {upper(found.noise, 5)}. This holds {found.premise}."
        )
        return [words]


def _alike(answer: PlannedAnswer) -> tuple[Any, ...]:
    return answer.kind, answer.values, f"{answer.noise_over_sampling:.3g}"


def ask_cost(request: AskRequest) -> AskedCost:
    """The cost of a request. A query that is not possible is no error: the cost says why, and what would work.

    Raises ConfigurationError or SchemaError if options, predicates or names do not fit the schema.
    """
    cost = _advised(request)
    is_one = request.adaptive is None and not request.is_made_up
    if request.estimator is None or not is_one or cost.honest_parties is None:
        return cost
    honest = cost.honest_parties / len(request.party_rows)
    estimator = make_estimator(request.estimator, **request.options)
    few = few_coefficients(
        request.estimator, estimator, request.schema, request.rows, request.epsilon, request.delta, honest=honest
    )
    return replace(cost, coefficients_warning=few)


def _advised(request: AskRequest) -> AskedCost:
    """The cost, with what would work, or would help against noise."""
    cost = bare_ask_cost(request)
    if not cost.feasible:
        return replace(cost, suggestion=_suggestion(request) or cost.suggestion)
    if cost.signal is None:
        return cost
    is_weak = request.unit == "person" and request.estimator is not None and cost.signal.is_weak
    if not cost.signal.is_lost and not is_weak:
        return cost

    def signal_of(changed: AskRequest) -> Signal | None:
        return bare_ask_cost(changed).signal

    changes = (more_rows(request, MOST_PLANNED_ROWS), larger_epsilon(request))
    if cost.signal.is_lost:
        helps = [words for each in changes for words in first_that_helps(each, signal_of)]
        return replace(cost, warning=cost.signal.warning(helps))

    def is_enough(changed: AskRequest) -> bool:
        signal = signal_of(changed)
        return signal is not None and not signal.is_weak

    helps = [words for each in changes for words in first_in(each, is_enough)]
    return replace(cost, warning=cost.signal.caution(helps))


def _suggestion(request: AskRequest) -> str | None:
    """Changes that were planned and work; None if none was found."""
    if len(request.party_rows) < _LEAST_PARTIES:
        return None
    kept = None if request.tolerance is None else bare_ask_cost(replace(request, tolerance=None)).tolerances
    tolerance = None if kept is None else rounded_up(kept.tolerance)

    def works(changed: AskRequest) -> bool:
        try:
            return bare_ask_cost(changed).feasible
        except ConfigurationError:  # a value that the estimator never takes
            return False

    return what_can_be_asked(request, works, tolerance)


def bare_ask_cost(request: AskRequest) -> AskedCost:
    """The cost without advice: what would work, and what would help against noise. Errors as of `ask_cost`."""
    if len(request.party_rows) < _LEAST_PARTIES:
        reason = "no cohort has one party, since its sum would be the party's own"
        return AskedCost(request, feasible=False, reason=reason, suggestion="have at least 2 parties")
    parties = PlannedParties(request)
    oracle = Federation(parties, request.schema, **request.terms).within(request.epsilon, request.delta, request.series)
    try:
        found, notes = _asked(request, oracle)
        statement = oracle.statement()
    except PlanError as error:
        reason, _, suggestion = str(error).replace("; ", ": ").partition(": ")
        return AskedCost(request, feasible=False, reason=reason, suggestion=suggestion)
    signals = [measured(plan, request.rows, len(request.party_rows)) for plan in parties.plans]
    answers = [PlannedAnswer.of(plan, *each) for plan, each in zip(parties.plans, signals, strict=True)]
    asked = [
        AskedSignal(signal, answer.kind, float(part))
        for answer, (signal, _), part in zip(answers, signals, parties.parts, strict=True)
    ]
    return AskedCost(
        request,
        feasible=True,
        answers=tuple(answers),
        at_most=len(answers) + _more(oracle, len(answers)),
        honest_parties=parties.plans[0].query.honest_of(len(request.party_rows)),
        statement=statement,
        tolerances=found,
        notes=notes,
        vanishing=parties.plans[0].vanishing,
        signal=signal_of_all(asked, left=float(oracle.left), is_pure=request.delta == 0),
    )


def _asked(request: AskRequest, oracle: BudgetedOracle) -> tuple[Estimates | None, tuple[str, ...]]:
    """Ask everything; the estimates of a batch of statistics, and what an estimator says that sizes decide.

    Its other warnings are about made-up rows.
    """
    if request.estimator is not None:
        fitted = make_estimator(request.estimator, **request.options).fit_queries(oracle)
        return None, tuple(getattr(fitted, "left_out_", ()))
    estimates = oracle.statistic(
        request.predicates,
        tolerance=request.tolerance,
        confidence=request.confidence,
        noise_rate=request.noise_rate,
        local=request.local,
    )
    return estimates, ()


def _more(oracle: BudgetedOracle, asked: int) -> int:
    """The queries that the budget that is left allows, each with as large a part as those before."""
    return int(oracle.left / ((_ONE - oracle.left) / asked))
