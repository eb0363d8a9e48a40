"""The cost of a plan, as data and as sentences."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Self

from dpcore.accounting import words
from dpcore.accounting.dp_feat import MOST_RADOS
from dpcore.accounting.protection import Scope
from dpcore.declared import plain_number
from dpcore.errors import ConfigurationError
from dpcore.numbers.rationals import LARGEST_INTEGER, upper_digits
from dpcore.queries.kind import MAX_PARTIES
from dpcore.records.feature_map import FeatureMap
from dpcore.records.schema import Schema
from learner.planning import Plan
from learner.vanishing import Vanishing
from radobase.presentation.words import counted, effort_words
from radofed.planning.plan_options import DesignFields
from radofed.planning.signal import Noise, Signal
from wire.design_options import AUTO, check_options
from wire.request_fields import given_options

# The checked input of a plan.

# Memory grows with the square root of the rows; this many take a second.
MOST_PLANNED_ROWS = 10**10
# Smaller values are zero in double precision.
SMALLEST_DELTA = Fraction(1, 10**300)

_OF_THE_SCHEMA = ("coordinates", "source", "bias")
_CHOOSING_RADOS = ("dp-feat", "gaussian", "fixed-support")
_NOISED = ("gaussian", "fixed-support", "moments", AUTO)


@dataclass(frozen=True, kw_only=True)
class PlanRequest(DesignFields):
    """The input of a plan of a design.

    Options are declared in `wire.request_fields` and `radofed.planning.plan_options`. Without `share_sd`, noise is
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
        hint = "" if self.design_name == AUTO else ", or a share's standard deviation"
        check_options(self.design_name, given, chosen=chosen, hints={"epsilon": hint})
        if self.feature_map is not None:
            self._check_map()
        if self.split != "local" and self.design_name != "dp-feat":
            raise ConfigurationError(f"a plan of {self.design_name} takes no split: leave it out, or plan dp-feat")
        if self.kind_name in ("plain", "dp-feat"):
            return
        if self.coordinates is None and self.design_name in _NOISED:
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
        if self.may_vanish and (len(self.party_rows) == 1 or self.split == "exact"):
            raise ConfigurationError("a pool has no parties that could vanish: leave may_vanish out")
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
        return self.kind_name in _CHOOSING_RADOS and self.rados is None and self.epsilon is not None

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
# with their square. It leaves out the draw and the sums of rados, and the network. Opening is its exponentiations: with
# AVX-512 IFMA it takes a sixth of that, and whether the learner has it is not known here.

# Seconds for one ciphertext, and for the table that a party builds once for each query.
MEASURED_BITS = 3072
ENCRYPT_S = 12.087e-6 * 62
# The whole table. A few ciphertexts are made without it, at most as slowly as with Paillier's exponent n.
TABLE_S = (15.462 - 12.087) * 1e-6 * 100_000
WITHOUT_TABLE_S = 413.08e-6 * 62
ADD_CHECKED_S = 0.1956e-6 * 62
DECRYPT_S = 57.544e-6 * 62


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


MOST_LOOKED_FOR = 100_000
"""The most rados that are looked for: more take seconds to count, and few queries have so many."""

PLAN_KEYS: dict[str, Any] = {
    "design": None,
    "joint": False,
    "split": "local",
    "scope": "record",
    "feasible": False,
    "epsilon": None,
    **dict.fromkeys(("delta", "theorem_epsilon", "delta_per_rado", "epsilon_if_others_collude", "marginal_epsilon")),
    "marginal_epsilon_if_others_collude": None,
    "rados": None,
    "party_rows": [],
    "acceptance_rate": 1.0,
    **dict.fromkeys(("largest_rados", "smallest_epsilon", "reason", "suggestion")),
    "unit": "one record",
    "assumptions": [],
    "warning": None,
    "coefficients_warning": None,
    "choice": None,
    "vanishing": None,
}
"""The keys that every plan has, with the values of one that has nothing to say."""

# Smaller probabilities are not printed.
_WORTH_SAYING = 1e-30


@dataclass(frozen=True)
class Cost:
    """The cost of a plan, or why the query is not possible."""

    request: PlanRequest
    feasible: bool
    scope: Scope = "none"
    """What is bounded."""
    epsilon: float | None = None
    """For the learner alone; None if the design has no bound, or if the plan is not feasible for another reason than
    the figure under collusion."""
    epsilon_if_others_collude: float | None = None
    """For counts, the worst party's, under "local" against learner, coordinator and all other parties, under "exact"
    not against the coordinator, which knows every count; for shared noise, with the shares of the honest parties only;
    None if not feasible."""
    delta: float | None = None
    """None if there is no figure."""
    theorem_epsilon: float | None = None
    """n epsilon_per_rado."""
    delta_per_rado: float | None = None
    """The probability, in one rado and for the learner alone, of a value that only one of two neighbours can produce.
    """
    acceptance_rate: float = 1.0
    """The probability that a uniform signature is admitted, for the smallest party (local) or the pool (exact)."""
    largest_rados: int | None = None
    """The most, up to the limit of the search, within the request's epsilon, 0 if none fits, None if the request has no
    epsilon or noise is chosen for its n."""
    smallest_epsilon: float | None = None
    """The least for the request's number of rados: drawn without truncation, or with the most noise that a slot takes;
    None if there is none, and for a feasible plan whose noise was chosen."""
    marginal_epsilon: float | None = None
    marginal_epsilon_if_others_collude: float | None = None
    """Of plain rados, for each single coordinate coded -1/+1, for the learner alone and under collusion."""
    noise: Noise | None = None
    sizes: Sizes | None = None
    """None if coordinates are not given or the plan cannot be packed."""
    reason: str | None = None
    suggestion: str | None = None
    """None if the plan is feasible."""
    signal: Signal | None = None
    """The noise against the signal, None if there is no noise."""
    warning: str | None = None
    """The alarm if the noise exceeds the signal, else None."""
    coefficients_warning: str | None = None
    """That the budget will measure few coefficients of least squares, if a number's moments are asked."""
    assumptions: tuple[str, ...] = ()
    """Of the bound."""
    choice: str | None = None
    """What was chosen about the design and its number of rados, and why, a sentence; None if nothing was."""
    vanishing: Vanishing | None = None
    """What it costs that members may vanish; None if none may."""

    @property
    def unit(self) -> str:
        """The unit of privacy: what two neighbouring tables differ in."""
        if self.scope == "person":
            return words.person(self.request.persons_may_repeat or 1)
        return words.UNITS[self.scope]

    @property
    def questions(self) -> tuple[Any, ...]:
        """What is asked, whatever the noise: a design asks the same at every epsilon."""
        return ()

    def to_dict(self) -> dict[str, Any]:
        """Every figure by name, in JSON's types; those of `noise` and `sizes` only if there are any."""
        request = self.request
        return {
            **{name: getattr(self, name, getattr(request, name, None)) for name in PLAN_KEYS},
            "design": request.design_name,
            "party_rows": list(request.party_rows),
            "assumptions": list(self.assumptions),
            "vanishing": None if self.vanishing is None else self.vanishing.to_dict(),
            **({} if self.signal is None else self.signal.to_dict()),
            **({} if self.noise is None else asdict(self.noise)),
            **({} if self.sizes is None else asdict(self.sizes)),
        }

    def sentences(self) -> list[str]:
        """The cost as sentences."""
        warning = [f"Warning: {each}" for each in (self.warning, self.coefficients_warning) if each is not None]
        assumed = [] if self.epsilon is None else [f"Assumed: {text}" for text in self.assumptions]
        choice = [] if self.choice is None else [self.choice]
        return [
            self._what(),
            *choice,
            *self._privacy(),
            *self._counts(),
            *self._noise(),
            *([] if self.vanishing is None else self.vanishing.sentences()),
            *warning,
            *self._effort(),
            *assumed,
        ]

    def _what(self) -> str:
        request, parties = self.request, len(self.request.party_rows)
        over = "one pool" if parties == 1 else f"{parties} parties with {request.rows} {request.noun}s in total"
        what = "Moments" if request.rados is None else f"{many_rados(request.rados)} of design {request.words}"
        if request.feature_map is not None and request.schema is not None:
            what += f" of records mapped to {request.feature_map.words(request.schema)},"
        head = f"{what} over {over}"
        if parties == 1:
            return f"{head} of {request.rows} {request.noun}s: for accounting only, since no cohort has one party."
        if request.split == "exact":
            return f"{head}, split exact: in simulation only, with a coordinator that is honest and tells no one."
        return f"{head}."

    def _privacy(self) -> Iterator[str]:
        if not self.feasible:
            yield f"This query is not possible: {self.reason}. What would work: {self.suggestion}."
            if self.epsilon is not None and self.delta is not None:
                yield f"Without collusion it would be: {words.alone(self.epsilon, self.delta)}."
        elif self.epsilon is None or self.epsilon_if_others_collude is None:
            yield (
                f"Warning: {self.request.words} rados{' without noise' * (self.request.design != 'plain')} have "
                "no bound. No differential privacy is claimed, and parties refuse them unless their policy allows "
                "unprotected rados."
            )
        else:
            assert self.delta is not None
            said = self._figures(self.epsilon, self.epsilon_if_others_collude, self.delta)
            yield f"{said}, for {self.unit}, within {words.within(self.scope)}."
        if self.marginal_epsilon is not None and self.marginal_epsilon_if_others_collude is not None:
            figures = (self.marginal_epsilon, self.marginal_epsilon_if_others_collude, self.request.delta)
            yield f"Each single coordinate coded -1/+1 is bounded, within its own values: {self._figures(*figures)}."

    def _figures(self, epsilon: float, colluding: float, delta: Fraction | float) -> str:
        if len(self.request.party_rows) == 1:
            return words.alone(epsilon, delta)
        return words.figures(epsilon, colluding, delta, self._coalition())

    def _coalition(self) -> str:
        request = self.request
        if self.noise is not None and request.design_name != "fixed-support":
            colluding = len(request.party_rows) - self.noise.honest_parties
            return words.coalition(counted(colluding, "party") if colluding else "")
        if request.split == "exact":
            return "if the other parties collude with the learner (the worst party's figure)"
        whose = " (the worst party's figure)" if self.noise is None else ""
        return f"{words.coalition('the other parties')}{whose}"

    def _counts(self) -> Iterator[str]:
        request = self.request
        if self.theorem_epsilon is not None:
            yield f"{words.theorem(self.theorem_epsilon)}."
        if self.delta_per_rado is not None and self.delta_per_rado >= _WORTH_SAYING:
            alone = "" if len(request.party_rows) == 1 else ", for the learner alone"
            yield f"In each rado{alone}, a value that reveals a record has probability {self.delta_per_rado:.3g}."
        if request.epsilon_per_rado is not None:
            pooled = request.split == "exact" or len(request.party_rows) == 1
            whose = "the pool's" if pooled else "the smallest party's"
            yield f"Of {whose} signatures {100 * self.acceptance_rate:.4g} % are admitted."
        if self.largest_rados is not None and request.epsilon is not None:
            more = " or more" if self.largest_rados >= max(MOST_LOOKED_FOR, request.n) else ""
            room = f"room for {many_rados(self.largest_rados)}{more}" if self.largest_rados else "no room for a rado"
            yield f"Within epsilon {float(request.epsilon):.6g} there is {room}."

    def _noise(self) -> Iterator[str]:
        noise = self.noise
        if noise is None:
            return
        yield from self._noise_words(noise)
        if self.signal is not None and self.warning is None:
            yield self.signal.sentence()

    def _noise_words(self, noise: Noise) -> Iterator[str]:
        if noise.product_noise_sd is not None:
            yield (
                f"Each party's noise has a standard deviation of {noise.share_sd:,} units. In total it adds "
                f"{upper_digits(noise.noise_sd, 4)} to each sum of edges and up to "
                f"{upper_digits(noise.product_noise_sd, 4)} to each sum of products, over "
                f"{self.request.rows:,} {self.request.noun}s; sampling alone spreads such a sum by {noise.spread:.4g}."
            )
            return
        own = math.ldexp(noise.share_sd, -noise.fraction_bits)
        whose = "Each record's own noise" if self.request.design_name == "fixed-support" else "Each party's noise"
        where = " on the sensitive coordinates" if self.request.joint else ""
        yield (
            f"{whose}{where} has a standard deviation of {own:.4g} ({noise.share_sd:,} units of "
            f"2^-{noise.fraction_bits}). A coordinate of a rado then has noise of {noise.noise_sd:.4g}; the draw of "
            f"signatures spreads it by up to {noise.spread:.4g}."
        )

    def _effort(self) -> Iterator[str]:
        if (sizes := self.sizes) is not None:
            layout = f"slots of {sizes.slot_bits} bits, values with {sizes.fraction_bits} fraction bits"
            yield effort_words(
                sizes.ciphertexts,
                sizes.upload_bytes_per_party,
                self.request.key_bits,
                sizes.estimated_seconds,
                layout=layout,
                without="the draw of rados",
            )


def many_rados(count: int) -> str:
    """A number of rados, in words."""
    return "1 rado" if count == 1 else f"{count} rados"
