"""The checked input of a plan."""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal, Self, get_args

from dpcore.accounting.dp_feat import MOST_RADOS
from dpcore.errors import ConfigurationError
from dpcore.numbers.rationals import LARGEST_INTEGER
from dpcore.paillier.public import MAXIMUM_BITS, MINIMUM_BITS
from dpcore.queries.base import MAX_PARTIES
from dpcore.records.feature_map import FeatureMap
from dpcore.records.schema import Schema
from learner.design_options import OPTIONS, check_delta, check_figures, check_options, plain_number
from radofed.planning.sizes import MEASURED_BITS

PlannedDesign = Literal["dp-feat", "plain", "fixed-support", "gaussian", "moments"]
Split = Literal["local", "exact"]
Source = Literal["boolean", "numeric", "category"]

# Memory grows with the square root of the rows; this many take a second.
MOST_PLANNED_ROWS = 10**10
# Smaller values are zero in double precision.
SMALLEST_DELTA = Fraction(1, 10**300)

_OF_THE_SCHEMA = ("coordinates", "source", "bias")
_POSITIVE = ("epsilon", "epsilon_per_rado", "norm_bound", "support", "edge_weight")


@dataclass(frozen=True, kw_only=True)
class PlanRequest:
    """The input of a plan.

    party_rows: m_p. rados: n; None for moments, and for dp-feat without `joint` to plan as many as `epsilon` allows, up
    to USUAL_RADOS. joint: dp-feat with noise on every coordinate of the sensitive source column, which `source`
    describes. epsilon_per_rado: Algorithm 2's, None for no truncation. epsilon: the total allowed; noise is calibrated
    to it, for the figure under collusion, unless share_sd is given. share_sd: the standard deviation of a party's noise
    share (of a noised table, its whole noise), in units of 2^-fraction_bits. delta: for the whole release. honest: h,
    the parties whose shares count under collusion; by default those of the smallest cohort that are not assumed to
    collude. norm_bound: R, by default that of a schema whose coordinates are all real-valued. support: the fraction of
    its records that a party draws; by default uniform signatures, and half for fixed-support. edge_weight: as in a
    moments request. bias: whether a record has the constant coordinate. fraction_bits: of a coordinate, None for those
    of a learner's query. split: "local", each party truncates its own count; "exact", a coordinator divides the pool's,
    in simulation only. coordinates: d, None to leave out bytes and seconds if the noise does not depend on it. schema:
    of which sensitive and rounded are names, see `over`; without one no name is given. feature_map: what records are
    mapped by before they are clipped, for a schema that it fits.

    Raises ConfigurationError if an argument makes no sense for any plan.
    """

    design: PlannedDesign
    party_rows: tuple[int, ...]
    rados: int | None = None
    joint: bool = False
    source: Source = "boolean"
    epsilon_per_rado: Fraction | None = None
    epsilon: Fraction | None = None
    share_sd: int | None = None
    delta: Fraction = Fraction(1, 1_000_000)
    honest: int | None = None
    norm_bound: Fraction | None = None
    support: Fraction | None = None
    edge_weight: Fraction | None = None
    bias: bool = True
    fraction_bits: int | None = None
    split: Split = "local"
    coordinates: int | None = None
    key_bits: int = MEASURED_BITS
    schema: Schema | None = None
    sensitive: tuple[str, ...] = ()
    rounded: tuple[str, ...] = ()
    feature_map: FeatureMap | None = None

    @classmethod
    def over(cls, schema: Schema, **options: Any) -> Self:
        """The plan of a query over a schema, which gives the coordinates, the bias and the usual clipping norm.

        options: other fields. Raises ConfigurationError if one states what the schema does.
        """
        for name in _OF_THE_SCHEMA:
            if name in options and options[name] != cls.__dataclass_fields__[name].default:
                raise ConfigurationError(f"the schema determines {name}: leave it out, or plan without the schema")
        feature_map: FeatureMap | None = options.get("feature_map")
        if feature_map is not None:
            feature_map.check(schema)
        d = schema.d if feature_map is None else feature_map.d
        return cls(**{**options, "coordinates": d}, schema=schema)

    def __post_init__(self) -> None:
        for name, known in (("split", Split), ("source", Source)):
            if (word := getattr(self, name)) not in get_args(known):
                raise ConfigurationError(f"{name} {word!r} is not known: choose {', '.join(get_args(known))}")
        self._check_options()
        self._check_privacy()
        self._check_sizes()

    def _check_options(self) -> None:
        fields = type(self).__dataclass_fields__
        asked = {name: getattr(self, name) for name in OPTIONS if name in fields}
        given = {name: value for name, value in asked.items() if value != fields[name].default}
        if self.schema is None and (self.sensitive or self.rounded):
            raise ConfigurationError("sensitive and rounded features are names of a schema: give it, or leave them out")
        # Without a schema there are no names, and a sensitive feature is understood.
        chosen = ("sensitive",) if self.schema is None else ()
        hint = ", or a share's standard deviation"
        check_options(self.design, given, chosen=chosen, hints={"epsilon": hint})
        if self.feature_map is not None:
            self._check_map()
        if self.split != "local" and self.design != "dp-feat":
            raise ConfigurationError(f"a plan of {self.design} takes no split: leave it out, or plan dp-feat")
        if self.kind_name in ("plain", "dp-feat"):
            return
        if self.coordinates is None and (self.design in ("gaussian", "fixed-support", "moments")):
            raise ConfigurationError(f"{self.words} noises every coordinate of a record: give their number")
        if self.coordinates is None and self.source == "category":
            raise ConfigurationError("a category has a coordinate for each of its values: give their number")

    def _check_map(self) -> None:
        if self.schema is None:
            raise ConfigurationError("a feature map is of the columns of a schema: give it, or leave the map out")
        if self.design == "fixed-support" and self.epsilon is None and self.share_sd is None:
            raise ConfigurationError(
                "fixed-support without noise takes no feature map: give an epsilon, or leave the map out"
            )

    def _check_privacy(self) -> None:
        check_delta(self.delta, SMALLEST_DELTA)
        if self.epsilon_per_rado is not None and self.epsilon is not None:
            raise ConfigurationError("epsilon per rado truncates and a total epsilon does not: give one of the two")
        figures: dict[str, Fraction | None] = {name: getattr(self, name) for name in _POSITIVE}
        check_figures(figures)
        for name, value in figures.items():
            if value is None:
                continue
            words = name.replace("_", " ")
            if value > LARGEST_INTEGER:
                raise ConfigurationError(f"{words} {plain_number(value)} protects nothing: give a smaller one")
            if name != "epsilon" and max(value.numerator, value.denominator) > LARGEST_INTEGER:
                raise ConfigurationError(f"{words} has more than 63 bits above or below the line: write it shorter")
        if self.support is not None and self.support >= 1:
            raise ConfigurationError(
                f"support is {plain_number(self.support)}: a rado takes a part of the rows, below 1"
            )

    def _check_sizes(self) -> None:
        if not 1 <= len(self.party_rows) <= MAX_PARTIES:
            raise ConfigurationError(f"{len(self.party_rows)} parties: give 1 to {MAX_PARTIES}")
        if min(self.party_rows) < 1:
            raise ConfigurationError(f"a party has {min(self.party_rows)} rows: give each at least one")
        if sum(self.party_rows) > MOST_PLANNED_ROWS:
            raise ConfigurationError(f"{sum(self.party_rows)} rows: a plan takes at most {MOST_PLANNED_ROWS} in total")
        if self.rados is not None and not 1 <= self.rados <= MOST_RADOS:
            raise ConfigurationError(f"{self.rados} rados: ask for 1 to {MOST_RADOS}")
        if self.coordinates is not None and self.coordinates < 1:
            raise ConfigurationError(f"{self.coordinates} coordinates: a row has at least one")
        if self.share_sd is not None and self.share_sd < 1:
            raise ConfigurationError(f"a share's standard deviation is {self.share_sd} units: give a positive integer")
        if self.honest is not None and not 1 <= self.honest <= len(self.party_rows):
            raise ConfigurationError(f"{self.honest} honest parties of {len(self.party_rows)}: give 1 to all of them")
        if not MINIMUM_BITS <= self.key_bits <= MAXIMUM_BITS:
            raise ConfigurationError(f"a key of {self.key_bits} bits: choose {MINIMUM_BITS} to {MAXIMUM_BITS}")

    @property
    def kind_name(self) -> str:
        """The design, or "joint" for dp-feat with joint."""
        return "joint" if self.joint else self.design

    @property
    def words(self) -> str:
        """The design in words."""
        return "joint dp-feat" if self.joint else self.design

    @cached_property
    def rows(self) -> int:
        """The pool's number of rows, M."""
        return sum(self.party_rows)

    @property
    def chooses_rados(self) -> bool:
        """Whether the number of rados follows from epsilon."""
        return self.kind_name == "dp-feat" and self.rados is None and self.epsilon is not None

    @property
    def n(self) -> int:
        """The number of rados, for a design that has them."""
        assert self.rados is not None
        return self.rados


def split_equally(rows: int, parties: int) -> tuple[int, ...]:
    """Row counts that differ by at most one. Raises ConfigurationError if a party would have none."""
    if rows < 1 or not 1 <= parties <= MAX_PARTIES:
        raise ConfigurationError(
            f"{rows} rows over {parties} parties: give at least one row and 1 to {MAX_PARTIES} parties"
        )
    if parties > rows:
        raise ConfigurationError(f"{parties} parties share {rows} rows: give at least one row for each party")
    each, left = divmod(rows, parties)
    return (each + 1,) * left + (each,) * (parties - left)
