"""The checked input of a plan."""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Self

from dpcore.accounting.dp_feat import MOST_RADOS
from dpcore.declared import plain_number
from dpcore.errors import ConfigurationError
from dpcore.numbers.rationals import LARGEST_INTEGER
from dpcore.queries.kind import MAX_PARTIES
from dpcore.records.feature_map import FeatureMap
from dpcore.records.schema import Schema
from learner.design_options import check_options, given_options
from learner.planning import Plan
from radofed.planning.fields import DesignFields

# Memory grows with the square root of the rows; this many take a second.
MOST_PLANNED_ROWS = 10**10
# Smaller values are zero in double precision.
SMALLEST_DELTA = Fraction(1, 10**300)

_OF_THE_SCHEMA = ("coordinates", "source", "bias")


@dataclass(frozen=True, kw_only=True)
class PlanRequest(DesignFields):
    """The input of a plan of a design.

    Options are declared in `wire.request_fields` and `radofed.planning.fields`. Without `share_sd`, noise is
    calibrated to `epsilon`, for the figure under collusion. Without a schema no name of a feature is given. Raises
    ConfigurationError if an argument makes no sense for any plan.
    """

    party_rows: tuple[int, ...]
    """m_p."""
    bias: bool = True
    """Whether a record has the constant coordinate."""
    schema: Schema | None = None
    """Of which sensitive and rounded are names, see `over`."""
    feature_map: FeatureMap | None = None
    """What records are mapped by before they are clipped, for a schema that it fits."""

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
        super().__post_init__()
        self._check_options()
        self._check_privacy()
        self._check_sizes()

    def _check_options(self) -> None:
        fields = type(self).__dataclass_fields__
        own = {name: getattr(self, name) for name in ("source", "split", "share_sd", "honest", "bias", "feature_map")}
        given = given_options(self) | {name: value for name, value in own.items() if value != fields[name].default}
        if self.schema is None and (self.sensitive or self.rounded):
            raise ConfigurationError("sensitive and rounded features are names of a schema: give it, or leave them out")
        # Without a schema there are no names, and a sensitive feature is understood.
        chosen = ("sensitive",) if self.schema is None else ()
        hint = ", or a share's standard deviation"
        check_options(self.design_name, given, chosen=chosen, hints={"epsilon": hint})
        if self.feature_map is not None:
            self._check_map()
        if self.split != "local" and self.design_name != "dp-feat":
            raise ConfigurationError(f"a plan of {self.design_name} takes no split: leave it out, or plan dp-feat")
        if self.kind_name in ("plain", "dp-feat"):
            return
        if self.coordinates is None and (self.design_name in ("gaussian", "fixed-support", "moments")):
            raise ConfigurationError(f"{self.words} noises every coordinate of a record: give their number")
        if self.coordinates is None and self.source == "category":
            raise ConfigurationError("a category has a coordinate for each of its values: give their number")

    def _check_map(self) -> None:
        if self.schema is None:
            raise ConfigurationError("a feature map is of the columns of a schema: give it, or leave the map out")
        if self.design_name == "fixed-support" and self.epsilon is None and self.share_sd is None:
            raise ConfigurationError(
                "fixed-support without noise takes no feature map: give an epsilon, or leave the map out"
            )

    def _check_privacy(self) -> None:
        if self.delta < SMALLEST_DELTA:
            said = f"below {float(SMALLEST_DELTA):g}" if self.delta else "0"
            raise ConfigurationError(f"delta is {said}: choose a number between 0 and 1, such as 1e-6")
        if self.epsilon_per_rado is not None and self.epsilon is not None:
            raise ConfigurationError("epsilon per rado truncates and a total epsilon does not: give one of the two")
        for name in ("epsilon", "epsilon_per_rado", "norm_bound", "support", "edge_weight"):
            value: Fraction | None = getattr(self, name)
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
        if self.rados is not None and self.rados > MOST_RADOS:
            raise ConfigurationError(f"{self.rados} rados: ask for 1 to {MOST_RADOS}")
        if self.honest is not None and not 1 <= self.honest <= len(self.party_rows):
            raise ConfigurationError(f"{self.honest} honest parties of {len(self.party_rows)}: give 1 to all of them")

    @property
    def kind_name(self) -> str:
        """The design, or "joint" for dp-feat with joint."""
        return "joint" if self.joint else self.design_name

    @property
    def words(self) -> str:
        """The design in words."""
        return "joint dp-feat" if self.joint else self.design_name

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


# The bytes of a planned query, and an estimate of its seconds.
#
# The estimate scales the measured time of one ciphertext on two cores, under a 3072-bit key with 62 values to a
# ciphertext (medians in benchmarks/results/encryption.json): exponentiations with the cube of the key's bits, products
# with their square. It leaves out the draw and the sums of rados, and the network.


# Seconds for one ciphertext, and for the table that a party builds once for each query.
MEASURED_BITS = 3072
ENCRYPT_S = 26.502e-6 * 62
# The whole table. A few ciphertexts are made without it, at most as slowly as with Paillier's exponent n.
TABLE_S = (32.88 - 26.502) * 1e-6 * 100_000
WITHOUT_TABLE_S = 767.23e-6 * 62
ADD_CHECKED_S = 0.5674e-6 * 62
DECRYPT_S = 118.86e-6 * 62


@dataclass(frozen=True)
class Sizes:
    """Each party's ciphertexts, their bytes without envelopes, and estimated seconds."""

    ciphertexts: int
    upload_bytes_per_party: int
    slot_bits: int
    """The width of a slot."""
    fraction_bits: int
    """Of a value, given or chosen for the fewest ciphertexts."""
    estimated_seconds: float

    @classmethod
    def of(cls, plan: Plan) -> Self:
        """Those of a query's plan."""
        encoding, ciphertexts = plan.query.encoding, plan.ciphertexts
        seconds = seconds_of(ciphertexts, plan.query.max_parties, plan.public_key.bits)
        return cls(ciphertexts, plan.upload_bytes_per_party, encoding.slot_bits, encoding.fraction_bits, seconds)


def seconds_of(ciphertexts: int, parties: int, key_bits: int) -> float:
    """An estimate of the seconds of one query in which each party uploads so many ciphertexts."""
    longer = key_bits / MEASURED_BITS
    # Parties encrypt at the same time; the coordinator adds the uploads of each.
    encrypting = min(TABLE_S + ciphertexts * ENCRYPT_S, ciphertexts * WITHOUT_TABLE_S)
    exponentiations = encrypting + ciphertexts * DECRYPT_S
    return longer**3 * exponentiations + longer**2 * parties * ciphertexts * ADD_CHECKED_S
