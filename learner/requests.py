"""Requests: what a learner wants to compute, independent of a roster. Planning turns a request into a query.

A request creates its kind of query: the design for the schema, with noise calibrated to the requested epsilon.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Annotated, Any, Self, TypeVar

from dpcore.accounting.local_response import LARGEST_EPSILON, LocalResponse
from dpcore.accounting.noise_shares import GaussianShares, LaplaceShares, NoiseShares, smallest_scale
from dpcore.accounting.protection import Setting
from dpcore.declared import Option, values_of
from dpcore.errors import ConfigurationError, PlanError
from dpcore.predicates.expressions import Predicate, is_boolean
from dpcore.queries.class_gradient import ClassGradientQuery
from dpcore.queries.class_moments import ClassMomentsQuery
from dpcore.queries.gradient import THETA_BITS, GradientQuery, fitting_fraction_bits
from dpcore.queries.hazard_gradient import HazardGradientQuery
from dpcore.queries.kind import MAX_VALUES, FractionBits, QueryKind
from dpcore.queries.label_moments import NumberMomentsQuery
from dpcore.queries.moments import (
    LITTLE_NOISE,
    MomentsQuery,
    edge_multiplier,
    label_multiplier,
    longest_norm,
    usual_norm,
)
from dpcore.queries.number_gradient import NumberGradientQuery
from dpcore.queries.rados import RadosQuery
from dpcore.queries.statistic import StatisticQuery
from dpcore.rados.designs import Design, FixedSupportDesign, GaussianDesign, dp_feat_design, joint_design, plain_design
from dpcore.rados.support import check_support
from dpcore.randomness.noise import SMALLEST_SHARE_SIGMA
from dpcore.records.clipping import Basis, Clip
from dpcore.records.coding import SIGNS
from dpcore.records.feature_map import FeatureMap
from dpcore.records.held_back import HeldBack
from dpcore.records.losses import LossName
from dpcore.records.persons import Persons, factor_of
from dpcore.records.schema import Schema
from learner.number_of_rados import (
    USUAL_A_COORDINATE,
    moments_error,
    noise_ratio,
    rado_error,
    rados_for_noise,
    rados_within,
    within_reach,
)
from radobase.options import training_part
from radobase.schema_files import load_feature_map
from wire.design_options import AUTO, DESIGNS, check_options
from wire.request_fields import (
    COUNT_FRACTION_BITS,
    EDGE_FRACTION_BITS,
    GRADIENT_FRACTION_BITS,
    HAZARD_FRACTION_BITS,
    MOMENT_FRACTION_BITS,
    USUAL_RADOS,
    VALUE_FRACTION_BITS,
    MomentsFields,
    QueryOptions,
    QueryTerms,
    ReleaseFields,
    given_options,
)
from wire.training import Training

RADOS_DESIGNS = tuple(name for name in DESIGNS if name != "moments")
HALF, WHOLE = Fraction(1, 2), Fraction(1)
# A party states a lower bound of its rows; its table may grow before it answers.
GROWTH = 4
# The failure probability of the half-widths by which Laplace and Gaussian noise are compared.
_COMPARED_AT = 0.05
# A whole budget may choose Laplace noise, which parts of one do not have.
_NEARLY_WHOLE = 1 - Fraction(1, 1 << 20)
# Each part is reduced by this factor: each release is counted with the slack of its own integer noise, and rounding
# must not raise the sum of the parts above the whole.
_PART_MARGIN = 1 - Fraction(1, 1 << 30)

Kind = TypeVar("Kind", bound=QueryKind)


@dataclass(frozen=True, kw_only=True)
class Terms(QueryTerms, ABC):
    """What every request has. None lets the plan choose.

    The fields with defaults and bounds are declared in `wire.request_fields`. Raises ConfigurationError if one is
    invalid for every roster.
    """

    schema: Schema = field(kw_only=False)
    held_back: HeldBack | None = None
    """The part of each party's rows that the request is about; None for all rows."""
    feature_map: FeatureMap | None = None
    """What records are mapped by before they are clipped, for kinds that protect records. It must fit the schema."""
    training: Training | None = None
    """The training that the request is a round of; None without one."""

    def __post_init__(self) -> None:
        if self.feature_map is not None:
            self.feature_map.check(self.schema)
        super().__post_init__()

    @property
    def persons(self) -> Persons | None:
        """That persons are the unit of privacy; None for records."""
        return Persons(self.persons_may_repeat or 1) if self.unit == "person" else None

    @property
    def d(self) -> int:
        """The number of coordinates of a record, mapped if there is a feature map, including the bias."""
        return self.schema.d if self.feature_map is None else self.feature_map.d

    @property
    @abstractmethod
    def usual_fraction_bits(self) -> int:
        """Fraction bits that suffice for the kind."""

    @abstractmethod
    def kind(self, honest_parties: int, party_rows: Sequence[int]) -> QueryKind:
        """The kind of query, its noise calibrated for the shares of `honest_parties`.

        party_rows: the known row counts. A support is checked for each of them. The number of rados that an epsilon
        allows is computed for their pool; parties that state no rows only raise it. Raises PlanError or SchemaError if
        the schema, the rows or the sizes do not allow the kind; the error says what would work.
        """

    def kind_and_why(self, honest_parties: int, party_rows: Sequence[int]) -> tuple[QueryKind, str]:
        """What `kind` returns, and what it chose, with the reason, as sentences; empty if it chose nothing."""
        return self.kind(honest_parties, party_rows), ""

    @property
    def noise_fraction_bits(self) -> int:
        """The fraction bits for which noise is calibrated: the requested ones, or the usual ones."""
        return self.usual_fraction_bits if self.fraction_bits is None else self.fraction_bits

    def fraction_bits_for(self, kind: QueryKind) -> FractionBits:
        """The fraction bits from which a plan of this kind chooses those with the fewest ciphertexts."""
        free = kind.free_fraction_bits if self.fraction_bits is None else None
        return FractionBits.exactly(self.noise_fraction_bits) if free is None else free

    def setting(self, honest_parties: int) -> Setting:
        """The setting for which noise is calibrated."""
        return Setting(self.d, self.noise_fraction_bits, honest_parties)


@dataclass(frozen=True, kw_only=True)
class RadosRequest(ReleaseFields, Terms):
    """A request for n rados over a schema, of a design that has rados.

    The designs:

    - "plain" protects the marginal of each boolean coordinate.
    - "dp-feat" protects the features in `sensitive`: boolean or threshold features, or real-valued ones that are also
      in `rounded`. With `joint`, noise protects a single source column within the whole release.
    - "fixed-support" and "gaussian" protect records, by noise on their edges or on the total. Fixed-support without
      an epsilon has no privacy bound.

    Raises ConfigurationError if an option is invalid for every roster.
    """

    def __post_init__(self) -> None:
        if self.design_name not in RADOS_DESIGNS:
            known = ", ".join(RADOS_DESIGNS)
            raise ConfigurationError(
                f"design {self.design_name!r} is not known, or has no rados; choose one of {known}"
            )
        super().__post_init__()
        check_unweighted(self.schema, "rados")
        choices = ", ".join(self.schema.boolean_coordinates) or "none; declare a boolean or threshold feature"
        check_options(self.design_name, given_options(self), hints={"sensitive": f"; those of the schema: {choices}"})

    @property
    def usual_fraction_bits(self) -> int:
        """See `Terms`."""
        return EDGE_FRACTION_BITS

    def kind(self, honest_parties: int, party_rows: Sequence[int]) -> RadosQuery:
        """See `Terms`."""
        design = self._design(party_rows)
        d, rados = self.d, self._number(design, honest_parties, party_rows)
        if rados > MAX_VALUES // d:
            raise PlanError(
                f"{rados} rados of {d} coordinates exceed the limit of {MAX_VALUES} values per "
                f"query: ask for at most {MAX_VALUES // d} rados"
            )
        kind = RadosQuery(rados, design)
        if self.epsilon is None or not kind.design.is_calibrated:
            return kind
        return self.calibrated(kind, honest_parties, party_rows)

    def calibrated(self, kind: RadosQuery, honest_parties: int, party_rows: Sequence[int]) -> RadosQuery:
        """The kind with the least noise for the request's epsilon. Raises PlanError."""
        assert self.epsilon is not None, "noise is calibrated to an epsilon"
        return kind.calibrated(self.setting(honest_parties), party_rows, self.epsilon, self.delta)

    def kind_and_why(self, honest_parties: int, party_rows: Sequence[int]) -> tuple[RadosQuery, str]:
        """See `Terms`."""
        kind = self.kind(honest_parties, party_rows)
        if self.rados is not None or self.design == "dp-feat":
            return kind, ""
        chosen = f"{kind.rados} rados were chosen for {self.d} coordinates"
        if not party_rows:
            return kind, f"{chosen}, {USUAL_A_COORDINATE} for each, as no party's rows are known."
        ratio = noise_ratio(kind, self.d, party_rows, self.noise_fraction_bits)
        error = rado_error(kind, self.d, party_rows, self.noise_fraction_bits)
        return kind, (
            f"{chosen}: the noise's variance is about {ratio:.2g} times that of the draw of signatures, and the "
            f"covariance of the rados has a relative error of about {error:.2g}."
        )

    def _number(self, design: Design, honest_parties: int, party_rows: Sequence[int]) -> int:
        """The requested number of rados, as many as epsilon allows for dp-feat, or as many as suit the noise."""
        if self.rados is not None and (self.design != "dp-feat" or self.joint or self.epsilon is None):
            return self.rados
        assert self.epsilon is not None, "a request without a number of rados stays within an epsilon"
        if self.design != "dp-feat":
            return self._suiting(design, honest_parties, party_rows)
        if not party_rows:
            raise PlanError(
                "no party's rows are known, so epsilon does not determine the rados; give rados, and no epsilon"
            )
        wanted = self.rados or USUAL_RADOS
        most = rados_within(
            self.epsilon, self.delta, [party_rows], self.epsilon_per_rado, asked=self.rados, most=wanted
        )
        return self.rados or most

    def _suiting(self, design: Design, honest_parties: int, party_rows: Sequence[int]) -> int:
        """As many rados as suit the coordinates and the noise; the usual number if that does not depend on it."""
        if self.design != "gaussian" or not party_rows:
            return within_reach(USUAL_A_COORDINATE * self.d, self.d)

        def ratio(rados: int) -> float:
            kind = self.calibrated(RadosQuery(rados, design), honest_parties, party_rows)
            return noise_ratio(kind, self.d, party_rows, self.noise_fraction_bits)

        return rados_for_noise(self.d, ratio)

    def _design(self, party_rows: Sequence[int]) -> Design:
        """The design for the schema, with the smallest possible noise if it will be calibrated to an epsilon."""
        match self.design:
            case "plain":
                return plain_design(self.schema)
            case "dp-feat" if self.joint:
                column = protected_column(self.schema, self.sensitive_names)
                return joint_design(self.schema, column, SMALLEST_SHARE_SIGMA)
            case "dp-feat":
                names, rounded = self.sensitive_names, self.rounded_names
                return dp_feat_design(self.schema, names, self.epsilon_per_rado, rounded=rounded)
            case "fixed-support":
                sigma = 0 if self.epsilon is None else SMALLEST_SHARE_SIGMA
                design = FixedSupportDesign(self.support or HALF, clip_of(self), sigma)
                for rows in party_rows:
                    check_support(rows, design.fraction)
                return design
            case "gaussian":
                return GaussianDesign(clip_of(self), SMALLEST_SHARE_SIGMA, self.support)
            case _:
                raise AssertionError("a request of another design is refused")


@dataclass(frozen=True, kw_only=True)
class NoisyTerms(Terms):
    """What every request with noise on each value has, which protects records. Raises ConfigurationError."""

    epsilon: Annotated[Fraction, Option("Total epsilon, if other parties collude.", above=0)]
    part: Annotated[Fraction, Option("Part of the budget (epsilon, delta) that this release uses.", above=0)] = WHOLE
    """A fraction of the squared mu of Gaussian noise: the composition of releases whose parts add up to 1 is
    (epsilon, delta)-private."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.part > 1:
            raise ConfigurationError(f"part is {self.part}; a release takes at most the whole budget, 1")

    @property
    def whole(self) -> Self:
        """The same at the whole budget: then it costs a party as much as all that is asked within the budget."""
        return self if self.part == 1 else replace(self, part=_NEARLY_WHOLE)

    @property
    def counted_part(self) -> Fraction:
        """The part to which noise is calibrated."""
        return self.part if self.part == 1 else self.part * _PART_MARGIN

    def calibrated(self, kind: Kind, honest_parties: int) -> Kind:
        """The kind with the least Gaussian noise for the request's part. Raises PlanError."""
        setting = self.setting(honest_parties)
        return kind.of_persons(self.persons).calibrated(setting, (), self.epsilon, self.delta, self.counted_part)


@dataclass(frozen=True, kw_only=True)
class MomentsRequest(MomentsFields, NoisyTerms):
    """A request for the first two moments of all rados. Raises ConfigurationError."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.products_of_each_class and not self.schema.label.classes:
            raise ConfigurationError(
                "only a label of several classes has products of each class: give a schema with one, or leave "
                "products_of_each_class out"
            )

    @property
    def usual_fraction_bits(self) -> int:
        """See `Terms`."""
        return MOMENT_FRACTION_BITS

    def kind(self, honest_parties: int, party_rows: Sequence[int]) -> MomentsQuery:  # noqa: ARG002  (any sizes)
        """See `Terms`."""
        clip, label = clip_of(self), self.schema.label
        if label.coding != SIGNS and self.norm_bound is None and self.epsilon >= LITTLE_NOISE:
            clip = Clip(longest_norm(self.schema) if self.feature_map is None else clip.norm_bound, self.schema.bias)
        multiplier = edge_multiplier(clip.norm_bound, self.noise_fraction_bits, self.edge_weight)
        least = MomentsQuery(clip, multiplier, SMALLEST_SHARE_SIGMA, weighted=self.schema.weight is not None)
        if label.classes:
            least = ClassMomentsQuery.of(least, label, products_of_each_class=self.products_of_each_class)
        elif label.coding.has_value:
            least = replace(least, edge_multiplier=label_multiplier(clip.norm_bound, self.edge_weight))
            least = NumberMomentsQuery.of(least, label)
        return self.calibrated(least, honest_parties)


@dataclass(frozen=True, kw_only=True)
class StatisticRequest(NoisyTerms):
    """A request for the sums of predicates over all records. Raises ConfigurationError."""

    predicates: tuple[Predicate, ...] = field(kw_only=False)
    """Typed against the schema."""
    pure: bool = False
    """Only Laplace noise, so that delta is 0, and `part` is a fraction of epsilon. Otherwise the smaller of Laplace and
    Gaussian noise for this batch; a part below 1 always uses Gaussian noise."""
    local: bool = False
    """Each record's answers are flipped at its party instead, and `part` is a fraction of epsilon."""

    def __post_init__(self) -> None:
        # Statistics are shares of rows, which count alike: the query is about the schema without its weight.
        object.__setattr__(self, "schema", self.schema.unweighted)
        super().__post_init__()

    @property
    def whole(self) -> Self:
        """See `NoisyTerms`."""
        return replace(self, part=WHOLE) if self.pure or self.local else super().whole

    @property
    def usual_fraction_bits(self) -> int:
        """See `Terms`."""
        if self.local:
            return 0
        if not all(map(is_boolean, self.predicates)):
            return VALUE_FRACTION_BITS
        # Counts are exact without fraction bits, but a Gaussian share of few integer units has a looser bound.
        return 0 if self.pure else COUNT_FRACTION_BITS

    def kind(self, honest_parties: int, party_rows: Sequence[int]) -> StatisticQuery:  # noqa: ARG002  (any sizes)
        """See `Terms`."""
        shares = GaussianShares(SMALLEST_SHARE_SIGMA)
        least = StatisticQuery(self.predicates, self.schema, shares, self.feature_map, persons=self.persons)
        if self.local:
            # Without a bit that a record decides, any epsilon holds.
            epsilon = self.epsilon * self.counted_part / max(1, least.sensitivity.l1)
            return replace(least, noise=LocalResponse(min(epsilon, Fraction(LARGEST_EPSILON))))
        l1 = least.sensitivity.l1 * factor_of(self.persons) << self.noise_fraction_bits
        laplace = LaplaceShares(smallest_scale(l1, self.epsilon * self.counted_part), honest_parties)
        if self.pure:
            return replace(least, noise=laplace)
        gaussian = self.calibrated(least, honest_parties)
        assert isinstance(gaussian.noise, GaussianShares), "noise was calibrated as Gaussian shares"
        # A part of a budget of squared mu is not a part of epsilon.
        choices: tuple[NoiseShares, ...] = (gaussian.noise,) if self.part < 1 else (laplace, gaussian.noise)
        values = len(self.predicates)
        noise = min(choices, key=lambda shares: shares.half_width(honest_parties, values, _COMPARED_AT))
        return replace(least, noise=noise)


@dataclass(frozen=True, kw_only=True)
class GradientRequest(NoisyTerms):
    """A request for the sum over all records of the clipped gradient of a loss. Raises ConfigurationError."""

    theta: tuple[float, ...] = field(kw_only=False)
    """(d,), of several classes (k d,) class by class: where it is taken, as reals; rounded to 2^-20."""
    loss: LossName = "logistic"
    clip: Annotated[Fraction | None, Option("C, the clipping norm of each record's gradient.", above=0)] = None
    """Required: the sensitivity is unbounded without it."""
    basis: Basis | None = None
    """See dpcore.queries.gradient; theta is then in its coordinates."""
    interval_weight: int = 1
    """Of proportional hazards: dpcore.queries.hazard_gradient."""
    class_weights: tuple[int, ...] = ()
    """Of labels of classes: dpcore.queries.gradient."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.clip is None:
            raise ConfigurationError(
                "a gradient without a clip has no privacy bound: give clip, the clipping norm of a record's gradient"
            )
        coding = self.schema.label.coding
        weights = self.d * max(1, coding.classes) + coding.intervals
        if len(self.theta) != weights or not all(math.isfinite(value) for value in self.theta):
            raise ConfigurationError(
                f"theta is not {weights} finite numbers: give one for each coordinate, of several classes for each, "
                "and of a time to an event one for each interval first"
            )

    @property
    def usual_fraction_bits(self) -> int:
        """See `Terms`."""
        assert self.clip is not None, "a request without a clip is refused"
        usual = HAZARD_FRACTION_BITS if self.schema.label.coding.intervals else GRADIENT_FRACTION_BITS
        return fitting_fraction_bits(self.clip, usual)

    def kind(self, honest_parties: int, party_rows: Sequence[int]) -> GradientQuery:  # noqa: ARG002  (any sizes)
        """See `Terms`."""
        assert self.clip is not None, "a request without a clip is refused"
        theta = tuple(round(value * (1 << THETA_BITS)) for value in self.theta)
        fields = (self.loss, theta, self.clip, SMALLEST_SHARE_SIGMA, self.basis)
        coding = self.schema.label.coding
        least: GradientQuery
        if coding.classes:
            least = ClassGradientQuery(*fields, coding.classes, class_weights=self.class_weights)
        elif coding.is_measured:
            least = NumberGradientQuery(*fields, coding)
        elif coding.intervals:
            least = HazardGradientQuery(*fields, coding.intervals, self.interval_weight)
        else:
            least = GradientQuery(*fields, class_weights=self.class_weights)
        return self.calibrated(replace(least, weighted=self.schema.weight is not None), honest_parties)


@dataclass(frozen=True, kw_only=True)
class ChosenRequest(Terms):
    """A request for moments, or for gaussian rados if moments are too many values. Raises ConfigurationError.

    Both protect records with noise for one epsilon, and moments tell the covariance more exactly
    (learner.number_of_rados).
    """

    epsilon: Annotated[Fraction, Option("Total epsilon, if other parties collude.", above=0)]
    norm_bound: Annotated[Fraction | None, Option("R, the clipping norm of records.", above=0)] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_unweighted(self.schema, "a choice between moments and rados")

    @property
    def usual_fraction_bits(self) -> int:
        """See `Terms`: those of moments."""
        return MOMENT_FRACTION_BITS

    def fraction_bits_for(self, kind: QueryKind) -> FractionBits:
        """See `Terms`."""
        return self._request_of(kind).fraction_bits_for(kind)

    def kind(self, honest_parties: int, party_rows: Sequence[int]) -> MomentsQuery | RadosQuery:
        """See `Terms`."""
        return self.kind_and_why(honest_parties, party_rows)[0]

    def kind_and_why(self, honest_parties: int, party_rows: Sequence[int]) -> tuple[MomentsQuery | RadosQuery, str]:
        """See `Terms`."""
        if self.d * (self.d + 3) // 2 > MAX_VALUES and self.persons is None:
            kind, why = self._rados.kind_and_why(honest_parties, party_rows)
            return kind, f"Gaussian rados were chosen: moments are too many values for one query. {why}"
        moments = self._moments.kind(honest_parties, party_rows)
        if self.schema.label.coding != SIGNS:
            return moments, "Moments were chosen: rados tell of labels of two classes alone."
        if self.persons is not None:
            return moments, "Moments were chosen: rados protect no persons."
        if not party_rows:
            return moments, "Moments were chosen: no party's rows are known, so their noise was not compared."
        error = moments_error(moments, self.d, party_rows, self._moments.noise_fraction_bits)
        said = f"noise is a relative error of about {error:.2g} on their products"
        rados = self._rados.kind(honest_parties, party_rows)
        others = rado_error(rados, self.d, party_rows, self._rados.noise_fraction_bits)
        return moments, (
            f"Moments were chosen: their {said}, and {rados.rados} gaussian rados, whose number suits the noise, would "
            f"have one of about {others:.2g} on their covariance."
        )

    def _request_of(self, kind: QueryKind) -> "RadosRequest | MomentsRequest":
        return self._rados if "rados" in kind.amounts else self._moments

    @property
    def _moments(self) -> MomentsRequest:
        return MomentsRequest(self.schema, epsilon=self.epsilon, norm_bound=self.norm_bound, **self._terms())

    @property
    def _rados(self) -> RadosRequest:
        asked: dict[str, Any] = {"epsilon": self.epsilon, "norm_bound": self.norm_bound}
        return RadosRequest(self.schema, design="gaussian", **asked, **self._terms())

    def _terms(self) -> dict[str, Any]:
        return {**values_of(self, QueryTerms), "held_back": self.held_back, "feature_map": self.feature_map}


BudgetRequest = MomentsRequest | StatisticRequest | GradientRequest
"""What takes a part of a budget."""
Request = RadosRequest | ChosenRequest | BudgetRequest


def check_unweighted(schema: Schema, what: str) -> None:
    """Raise ConfigurationError if the schema has a weight, which `what`, a plural or singular subject, cannot count."""
    if schema.weight is not None:
        raise ConfigurationError(
            f"{what} cannot count rows by the weight {schema.weight.column!r}: choose the design moments or the "
            "estimator newton, or a schema file without [weight]"
        )


def release_request(
    schema: Schema, asked: ReleaseFields, **terms: Any
) -> RadosRequest | MomentsRequest | ChosenRequest:
    """The request of a release. terms: fields of `Terms`.

    Raises ConfigurationError if the design is unknown, or a field does not belong to it or is invalid.
    """
    mapped = {"feature_map": terms["feature_map"]} if terms.get("feature_map") is not None else {}
    given, design = given_options(asked) | mapped, asked.design_name
    if design == "moments":
        check_options(design, given)
        assert asked.epsilon is not None, "moments need an epsilon"
        return MomentsRequest(schema, epsilon=asked.epsilon, **values_of(asked, MomentsFields), **terms)
    if design == AUTO:
        check_options(design, given)
        assert asked.epsilon is not None, "a choice needs an epsilon"
        return ChosenRequest(schema, epsilon=asked.epsilon, norm_bound=asked.norm_bound, **terms)
    check_options(design, given, chosen=("rados", "sensitive", "epsilon"))
    return RadosRequest(schema, **values_of(asked, ReleaseFields), **terms)  # checks what is missing


def query_request(options: QueryOptions, schema: Schema) -> RadosRequest | MomentsRequest | ChosenRequest:
    """The request of `rado learner query`. Raises ConfigurationError or SchemaError."""
    return release_request(
        schema,
        options,
        **values_of(options, QueryTerms),
        held_back=training_part(options.hold_back),
        feature_map=None if options.map_file is None else load_feature_map(options.map_file, schema),
    )


def protected_column(schema: Schema, sensitive: Sequence[str]) -> str:
    """The source column that joint dp-feat protects: the only name, or the column that a feature of it derives from.

    Raises PlanError if that is none, SchemaError if there is no such coordinate.
    """
    (name,) = sensitive
    column = name if schema.derived_from(name) else schema.sources(name)
    if column is None:
        raise PlanError(f"{name!r} derives from no column, so there is nothing to protect: name a source column")
    return column


def clip_of(request: RadosRequest | MomentsRequest | ChosenRequest) -> Clip:
    """The clipping of records, to the requested norm or to `usual_norm` of the schema."""
    return Clip(request.norm_bound or usual_norm(request.schema, request.feature_map), request.schema.bias)
