"""What a query would cost, before anybody is asked: privacy, exactly, and ciphertexts, bytes and seconds.

Nothing here knows a roster, a schema or a key: row counts and sizes are enough. `learner.planning` makes the query
itself.

Seconds are an estimate. They scale what one ciphertext took on two cores under a 3072-bit key, 62 values to a
ciphertext (medians in benchmarks/results/encryption.json): exponentiations with the cube of the key's bits, products
with their square. Drawing and summing rados, and the network, come on top.
"""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal, get_args

from dpcore.errors import ConfigurationError, PlanError
from dpcore.fixed_point import plan_encoding
from dpcore.paillier.packing import ciphertext_count
from dpcore.paillier.public import MAXIMUM_BITS, MINIMUM_BITS
from dpcore.privacy.composition import DeltaTooSmallError, InfiniteEpsilonError
from dpcore.privacy.dp_feat import (
    MOST_RADOS,
    DpFeatAccount,
    account,
    account_of_exact_split,
    delta_per_rado,
    epsilon_for,
    theorem_epsilon,
)
from dpcore.privacy.laws import binomial_mass
from dpcore.queries.rados import RadosQuery
from dpcore.rados.designs import LARGEST_INTEGER, PlainDesign
from dpcore.rados.truncation import admissible_range
from learner.planning import EDGE_FRACTION_BITS, GROWTH
from radofed.planning_limits import largest_rados
from wire.query import MAX_PARTIES, MAX_VALUES

PlannedDesign = Literal["dp-feat", "plain"]
Split = Literal["local", "exact"]

# Counting takes memory with the root of the rows; this many take a second.
MOST_PLANNED_ROWS = 10**10
# What is smaller is nothing to double precision.
SMALLEST_DELTA = Fraction(1, 10**300)

# Seconds for one ciphertext, and for the table that a party builds once a query.
MEASURED_BITS = 3072
ENCRYPT_S = 24.664e-6 * 62
TABLE_S = 0.39212
ADD_CHECKED_S = 0.24602e-6 * 62
DECRYPT_S = 66.847e-6 * 62


@dataclass(frozen=True)
class PlanRequest:
    """What is to be planned.

    party_rows: m_p. epsilon_per_rado: Algorithm 2's, None for no truncation. epsilon: a total to stay within, without
    truncation. delta: for the whole release; nothing is counted at it for "plain". split: "local", each party truncates
    its own count; "exact", a coordinator divides the pool's, in simulation only. coordinates: d, None where bytes and
    seconds are not wanted.

    Raises ConfigurationError where an argument makes no sense for any plan.
    """

    design: PlannedDesign
    party_rows: tuple[int, ...]
    rados: int
    epsilon_per_rado: Fraction | None = None
    epsilon: Fraction | None = None
    delta: Fraction = Fraction(1, 1_000_000)
    split: Split = "local"
    coordinates: int | None = None
    key_bits: int = MEASURED_BITS

    def __post_init__(self) -> None:
        for name, known in (("design", get_args(PlannedDesign)), ("split", get_args(Split))):
            if (word := getattr(self, name)) not in known:
                raise ConfigurationError(f"{name} {word!r} is not known: choose {' or '.join(known)}")
        self._check_privacy()
        if not 1 <= len(self.party_rows) <= MAX_PARTIES:
            raise ConfigurationError(f"{len(self.party_rows)} parties: give 1 to {MAX_PARTIES}")
        if min(self.party_rows) < 1:
            raise ConfigurationError(f"a party has {min(self.party_rows)} rows: give each at least one")
        if sum(self.party_rows) > MOST_PLANNED_ROWS:
            raise ConfigurationError(f"{sum(self.party_rows)} rows: a plan takes at most {MOST_PLANNED_ROWS} in all")
        if not 1 <= self.rados <= MOST_RADOS:
            raise ConfigurationError(f"{self.rados} rados: ask for 1 to {MOST_RADOS}")
        if self.coordinates is not None and self.coordinates < 1:
            raise ConfigurationError(f"{self.coordinates} coordinates: a row has at least one")
        if not MINIMUM_BITS <= self.key_bits <= MAXIMUM_BITS:
            raise ConfigurationError(f"a key of {self.key_bits} bits: choose {MINIMUM_BITS} to {MAXIMUM_BITS}")

    def _check_privacy(self) -> None:
        if not SMALLEST_DELTA <= self.delta < 1:
            raise ConfigurationError(f"delta is {_plain(self.delta)}: choose a number between 0 and 1, such as 1e-6")
        if self.epsilon_per_rado is not None and self.epsilon is not None:
            raise ConfigurationError("epsilon per rado truncates and a total epsilon does not: give one of the two")
        for name in ("epsilon", "epsilon_per_rado"):
            value = getattr(self, name)
            if value is None:
                continue
            words = name.replace("_", " ")
            if self.design == "plain":
                raise ConfigurationError(
                    f"plain rados have no {words}, nothing is bounded: leave it out or plan dp-feat"
                )
            if value <= 0:
                raise ConfigurationError(f"{words} is {_plain(value)}: make it positive, or leave it out")
            if value > LARGEST_INTEGER:
                raise ConfigurationError(f"{words} is {_plain(value)}: that bounds nothing, give a smaller one")
        exact = self.epsilon_per_rado
        if exact is not None and max(exact.numerator, exact.denominator) > LARGEST_INTEGER:
            raise ConfigurationError("epsilon per rado has more than 63 bits above or below the line: write it shorter")

    @cached_property
    def rows(self) -> int:
        """The pool's row count M."""
        return sum(self.party_rows)


@dataclass(frozen=True)
class Sizes:
    """What travels: ciphertexts each party uploads, their bytes without envelopes, the width of a slot, seconds."""

    ciphertexts: int
    upload_bytes_per_party: int
    slot_bits: int
    estimated_seconds: float


@dataclass(frozen=True)
class Cost:
    """What the plan of a request costs, or why it cannot be asked.

    epsilon: for the learner alone. None where the design has no bound and where the plan is not feasible, unless it is
    so for the figure under collusion alone. epsilon_if_others_collude: the worst party's, None where not feasible.
    Under "local" against learner, coordinator and all other parties; under "exact" not against the coordinator, which
    knows every count. theorem_epsilon: n epsilon_per_rado. delta: None where nothing is counted. delta_per_rado: the
    probability, in one rado and for the learner alone, of a value that only one of two neighbours can produce.
    acceptance_rate: the chance that a uniform signature is admitted, for the smallest party (local) or the pool
    (exact). largest_rados: the most that stay within the request's epsilon, 0 where none do, None where it has none.
    sizes: None where coordinates are not given or the plan cannot be packed. reason, suggestion: None where the plan is
    feasible.
    """

    request: PlanRequest
    feasible: bool
    epsilon: float | None
    epsilon_if_others_collude: float | None
    delta: float | None
    theorem_epsilon: float | None
    delta_per_rado: float | None
    acceptance_rate: float
    largest_rados: int | None
    sizes: Sizes | None
    reason: str | None
    suggestion: str | None

    def to_dict(self) -> dict[str, Any]:
        """Every figure by name, in types that JSON has; those of `sizes` only where there are any."""
        request = self.request
        return {
            "design": request.design,
            "split": request.split,
            "feasible": self.feasible,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "theorem_epsilon": self.theorem_epsilon,
            "delta_per_rado": self.delta_per_rado,
            "epsilon_if_others_collude": self.epsilon_if_others_collude,
            "rados": request.rados,
            "party_rows": list(request.party_rows),
            "acceptance_rate": self.acceptance_rate,
            "largest_rados": self.largest_rados,
            "reason": self.reason,
            "suggestion": self.suggestion,
            **({} if self.sizes is None else asdict(self.sizes)),
        }

    def sentences(self) -> list[str]:
        """The same for people."""
        return [self._what(), *self._privacy(), *self._effort()]

    def _what(self) -> str:
        request, parties = self.request, len(self.request.party_rows)
        over = "one pool" if parties == 1 else f"{parties} parties with {request.rows} rows in all"
        head = f"{request.rados} rados of design {request.design} over {over}"
        if parties == 1:
            return f"{head} of {request.rows} rows: for accounting only, since no cohort has one party."
        if request.split == "exact":
            return f"{head}, split exact: in simulation only, with a coordinator that is honest and tells nobody."
        return f"{head}."

    def _privacy(self) -> Iterator[str]:
        request = self.request
        if not self.feasible:
            yield f"This cannot be asked: {self.reason}. What would work: {self.suggestion}."
            if self.epsilon is not None:
                yield f"Against the learner alone epsilon would be {_up(self.epsilon)} at delta {self.delta:.3g}."
        elif self.epsilon is None or self.epsilon_if_others_collude is None:
            yield (
                "Warning: plain rados have no bound. No differential privacy is claimed, and parties refuse them "
                "unless their policy allows unprotected rados."
            )
        else:
            yield (
                f"Against the learner alone epsilon is {_up(self.epsilon)} at delta {self.delta:.3g}, for one record's "
                "value of the sensitive coordinate, within that coordinate's own values."
            )
            who = "the other parties" if request.split == "exact" else "the coordinator and the other parties"
            yield f"If {who} work with the learner, it is {_up(self.epsilon_if_others_collude)} for the worst party."
        if self.theorem_epsilon is not None:
            yield f"Theorem 6 alone would say {self.theorem_epsilon:.6g}."
        if self.delta_per_rado:
            yield f"In each rado, a value that gives a record away has probability {self.delta_per_rado:.3g}."
        if request.epsilon_per_rado is not None:
            whose = "the pool's" if request.split == "exact" else "the smallest party's"
            yield f"Of {whose} signatures {100 * self.acceptance_rate:.4g} % are admitted."
        if self.largest_rados is not None and request.epsilon is not None:
            yield f"Within epsilon {float(request.epsilon):.6g} there is room for {self.largest_rados} rados."

    def _effort(self) -> Iterator[str]:
        if self.sizes is not None:
            yield (
                f"Each party uploads {self.sizes.ciphertexts} ciphertexts under a {self.request.key_bits}-bit key, "
                f"{self.sizes.upload_bytes_per_party:,} bytes in slots of {self.sizes.slot_bits} bits; encrypting, "
                f"adding and decrypting take about {self.sizes.estimated_seconds:.2g} s, by what was measured on two "
                "cores, drawing rados and the network apart."
            )


def plan_cost(request: PlanRequest) -> Cost:
    """The cost of a request. A plan that cannot be asked is no error: it says why, and what would work."""
    if request.design == "plain":
        return _with_sizes(_bare(request, feasible=True))
    cost = replace(
        _bare(request, feasible=False),
        delta=float(request.delta),
        theorem_epsilon=_theorem(request),
        delta_per_rado=_given_away(request),
        acceptance_rate=_acceptance(request),
        largest_rados=None
        if request.epsilon is None
        else largest_rados(request.party_rows, request.epsilon, request.delta),
    )
    try:
        counted = _account(request)
    except PlanError as error:
        alone = None if request.epsilon is not None else _learner_alone(request)
        whose = "" if alone is None else "parties refuse it, since if the other parties work with the learner, "
        reason = whose + str(error).partition(": ")[0]
        return _with_sizes(replace(cost, epsilon=alone, reason=reason, suggestion=_what_works(request, error)))
    if request.epsilon is not None and Fraction(counted.epsilon) > request.epsilon:
        reason = (
            f"{request.rados} rados cost an epsilon of {_up(counted.epsilon)}, and {float(request.epsilon):.6g} is "
            "what they may cost"
        )
        fewer = f"ask for at most {cost.largest_rados} rados, or " if cost.largest_rados else ""
        suggestion = f"{fewer}allow an epsilon of {_up(counted.epsilon)}"
        return _with_sizes(replace(cost, reason=reason, suggestion=suggestion))
    return _with_sizes(
        replace(
            cost,
            feasible=True,
            epsilon=counted.epsilon,
            epsilon_if_others_collude=counted.epsilon_if_others_collude,
        )
    )


def split_equally(rows: int, parties: int) -> tuple[int, ...]:
    """Row counts that differ by one at most. Raises ConfigurationError where a party would have none."""
    if rows < 1 or not 1 <= parties <= MAX_PARTIES:
        raise ConfigurationError(
            f"{rows} rows over {parties} parties: give at least one row and 1 to {MAX_PARTIES} parties"
        )
    if parties > rows:
        raise ConfigurationError(f"{parties} parties share {rows} rows: give at least one row for each party")
    each, left = divmod(rows, parties)
    return (each + 1,) * left + (each,) * (parties - left)


def _bare(request: PlanRequest, *, feasible: bool) -> Cost:
    return Cost(request, feasible, *(None,) * 5, 1.0, *(None,) * 4)


def _account(request: PlanRequest) -> DpFeatAccount:
    count = account_of_exact_split if request.split == "exact" else account
    return count(request.party_rows, request.rados, request.epsilon_per_rado, request.delta)


def _learner_alone(request: PlanRequest) -> float | None:
    """The learner's own figure of several parties, None where that is not finite."""
    if len(request.party_rows) == 1:
        return None
    pools = [request.rows] if request.split == "exact" else request.party_rows
    try:
        return epsilon_for(pools, request.rados, request.epsilon_per_rado, request.delta).upper
    except PlanError:
        return None


def _theorem(request: PlanRequest) -> float | None:
    return None if request.epsilon_per_rado is None else theorem_epsilon(request.rados, request.epsilon_per_rado)


def _acceptance(request: PlanRequest) -> float:
    if request.epsilon_per_rado is None:
        return 1.0
    rows = request.rows if request.split == "exact" else min(request.party_rows)
    return binomial_mass(rows, admissible_range(rows, request.epsilon_per_rado)[0])


def _given_away(request: PlanRequest) -> float | None:
    """The mass of the pool's least admitted count, which is the product of the parties' where each truncates its own.

    None where a truncation admits nothing.
    """
    pools = [request.rows] if request.split == "exact" else request.party_rows
    product = 1.0
    for rows, parties in Counter(pools).items():
        if request.epsilon_per_rado is not None:
            low, high = admissible_range(rows, request.epsilon_per_rado)
            if low > high:
                return None
            # Hoeffding: p(low) <= 2 exp(-2 (m/2 - low)^2 / m) (m + 1), below what a double holds. The exact figure
            # would be walked to step by step.
            if (rows - 2 * low) ** 2 > 2 * 800 * rows:
                return 0.0
        product *= delta_per_rado(rows, request.epsilon_per_rado) ** parties
    return product


def _what_works(request: PlanRequest, error: PlanError) -> str:
    """Ways out that were counted and work; more rows where nothing else does."""
    ways = []
    fewer = _fewer_rados(request, error)
    if fewer is not None:
        ways.append(f"ask for {fewer} rados")
    if isinstance(error, DeltaTooSmallError):
        # Doubled, so that one digit of it is no less than what counts.
        larger = f"{2 * error.smallest_delta:.0e}"
        if Fraction(larger) < 1 and _works(replace(request, delta=Fraction(larger))):
            ways.append(f"choose a delta of {larger}")
    if request.epsilon_per_rado is not None:
        free = replace(request, epsilon_per_rado=None)
        try:
            ways.append(f"draw without truncation, at an epsilon of {_up(_account(free).epsilon)}")
        except PlanError as refusal:
            fewer = _fewer_rados(free, refusal)
            if fewer is not None:
                ways.append(f"ask for {fewer} rados without truncation")
    return ", or ".join(ways) or "have more rows per party, or allow a larger delta"


def _fewer_rados(request: PlanRequest, error: PlanError) -> int | None:
    """A number of rados below the request's that can be asked; None where none was found."""
    n = request.rados
    while True:
        n -= max(1, n // 10)
        if isinstance(error, InfiniteEpsilonError):
            n = min(n, error.largest_rados)
        if n < 1:
            return None
        try:
            _account(replace(request, rados=n))
            return n
        except PlanError as refusal:
            error = refusal


def _works(request: PlanRequest) -> bool:
    try:
        _account(request)
        return True
    except PlanError:
        return False


def _with_sizes(cost: Cost) -> Cost:
    """The cost with its sizes, or as one that cannot be asked where it cannot be packed."""
    request = cost.request
    if request.coordinates is None:
        return cost
    try:
        return replace(cost, sizes=_sizes(request, request.coordinates))
    except PlanError as error:
        reason, _, suggestion = str(error).partition(": ")
        if not cost.feasible:
            return cost
        return replace(
            cost,
            feasible=False,
            epsilon=None,
            epsilon_if_others_collude=None,
            reason=reason,
            suggestion=suggestion,
        )


def _sizes(request: PlanRequest, coordinates: int) -> Sizes:
    if request.rados * coordinates > MAX_VALUES:
        raise PlanError(
            f"{request.rados} rados of {coordinates} coordinates are more than the {MAX_VALUES} values of one query: "
            f"ask for at most {MAX_VALUES // coordinates} rados"
        )
    parties = len(request.party_rows)
    # The room that a learner's query leaves for tables that grow.
    most_rows = GROWTH * request.rows
    kind = RadosQuery(request.rados, PlainDesign())
    encoding = plan_encoding(
        largest_sum=max(kind.largest_sum(most_rows, EDGE_FRACTION_BITS), most_rows),
        max_parties=parties,
        fraction_bits=EDGE_FRACTION_BITS,
    )
    ciphertexts = ciphertext_count(kind.length(coordinates), encoding, request.key_bits)
    longer = request.key_bits / MEASURED_BITS
    # Parties encrypt at the same time; the coordinator adds each one's.
    exponentiations = TABLE_S + ciphertexts * (ENCRYPT_S + DECRYPT_S)
    seconds = longer**3 * exponentiations + longer**2 * parties * ciphertexts * ADD_CHECKED_S
    ciphertext_bytes = 2 * -(-request.key_bits // 8)
    return Sizes(ciphertexts, ciphertexts * ciphertext_bytes, encoding.slot_bits, seconds)


def _plain(number: Fraction) -> str:
    """A number for people, also where it is beyond what a double holds."""
    try:
        return f"{float(number):.6g}"
    except OverflowError:
        return "out of any range"


def _up(epsilon: float) -> str:
    """Rounded up to a thousandth: a bound that is printed must not be below the one that was counted."""
    return f"{math.ceil(Fraction(epsilon) * 1000) / 1000:.3f}"
