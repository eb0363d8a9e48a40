"""Requests: what a learner wants to know, before a roster makes a query of it."""

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal, get_args

from dpcore.errors import ConfigurationError
from dpcore.predicates.expressions import Predicate
from dpcore.records.basis import Basis
from dpcore.records.margin_weights import Loss
from dpcore.records.schema import Schema

USUAL_RADOS = 1000
"""Nock, Patrini and Friedman (ICML 2015), section 4, take n = min(1000, m / 2)."""

RadosDesign = Literal["plain", "dp-feat", "fixed-support", "gaussian"]
DESIGNS = (*get_args(RadosDesign), "moments")
"""All names of designs; "moments" is a `MomentsRequest`."""

_LEAST = {
    "rados": 1,
    "attempts": 1,
    "answer_within_s": 1,
    "prepare_within_s": 1,
    "upload_within_s": 1,
    "expires_after_s": 1,
    "max_rows": 1,
    "max_parties": 1,
    "cohort_min": 1,
    "colluders": 0,
}
_EXACT = ("delta", "epsilon", "epsilon_per_rado", "norm_bound", "support", "edge_weight", "clip", "part")


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What every request may set. None lets the plan choose.

    delta: what epsilon is counted and charged at. max_rows: the most rows of a cohort; by default four times what the
    roster states, a million where it states nothing. cohort_min: the fewest parties of a cohort; by default
    max(c + 2, parties - 1). colluders: c, the parties assumed to collude with coordinator and learner; by default
    min(1, parties - 2). fraction_bits: of a coordinate, or of a statistic's value; by default, of rados without noise
    as many as go into the fewest ciphertexts, from what n rados can tell up to 16 (dpcore.queries.fraction_bits), and
    of other kinds a fixed number.

    Raises ConfigurationError where an option makes no sense for any roster.
    """

    schema: Schema = field(kw_only=False)
    delta: Fraction = Fraction(1, 1_000_000)
    fraction_bits: int | None = None
    max_rows: int | None = None
    max_parties: int | None = None
    cohort_min: int | None = None
    colluders: int | None = None
    attempts: int = 3
    answer_within_s: int = 600
    prepare_within_s: int = 3600
    upload_within_s: int = 3600
    expires_after_s: int = 24 * 3600

    def __post_init__(self) -> None:
        for name in _EXACT:
            value = getattr(self, name, None)
            if value is None:
                continue
            if not isinstance(value, Fraction):
                raise ConfigurationError(f"{name} must be an exact fraction: write Fraction('1e-6'), not 1e-6")
            if value <= 0:
                raise ConfigurationError(f"{name} is {value}; make it positive")
        if not self.delta < 1:
            raise ConfigurationError(f"delta is {self.delta}; choose one between 0 and 1, such as 1e-6")
        # The query refuses these too; here they bear the option's name.
        for name, least in _LEAST.items():
            value = getattr(self, name, None)
            if value is not None and value < least:
                raise ConfigurationError(f"{name} is {value}; it must be at least {least}")


@dataclass(frozen=True, kw_only=True)
class RadosRequest(Terms):
    """What a learner wants: n rados over a schema.

    rados: n; for dp-feat without `joint` it may be left out, and is then the most that stay within `epsilon`, up to
    USUAL_RADOS.

    design: "plain" protects boolean coordinates, each by its own marginal; "dp-feat" names those to protect in
    `sensitive`, boolean or threshold features, or real-valued ones that are also in `rounded`; with `joint`, a single
    source column is protected within the whole release, by noise; "fixed-support" and "gaussian" protect records, by
    noise on their edges or on the total.

    epsilon_per_rado: Algorithm 2's epsilon for dp-feat, None for no truncation. epsilon: for dp-feat without `joint`
    the total that the figure for the learner alone stays within; elsewhere the total that noise is calibrated to, at
    `delta`, when all but the honest parties collude; joint dp-feat, gaussian and fixed-support need it, but fixed-
    support may do without and then protects nothing. norm_bound: R, to which records are clipped; by default what most
    records of the schema stay below. support: the fraction of its records that a party draws for each rado; fixed-
    support draws half by default, gaussian draws uniform signatures.

    Raises ConfigurationError where an option makes no sense for any roster.
    """

    rados: int | None = field(default=None, kw_only=False)
    design: RadosDesign = "plain"
    sensitive: str | tuple[str, ...] | None = None
    joint: bool = False
    rounded: tuple[str, ...] = ()
    epsilon_per_rado: Fraction | None = None
    epsilon: Fraction | None = None
    norm_bound: Fraction | None = None
    support: Fraction | None = None

    def __post_init__(self) -> None:
        if self.design not in RadosDesign.__args__:  # type: ignore[attr-defined]  # of a Literal
            known = ", ".join(RadosDesign.__args__)  # type: ignore[attr-defined]  # of a Literal
            raise ConfigurationError(f"design {self.design!r} is not known; choose one of {known}")
        super().__post_init__()
        allowed = {
            "plain": set(),
            "dp-feat": {"sensitive", "joint", "epsilon"}
            if self.joint
            else {"sensitive", "rounded", "epsilon_per_rado", "epsilon"},
            "fixed-support": {"epsilon", "norm_bound", "support"},
            "gaussian": {"epsilon", "norm_bound", "support"},
        }[self.design]
        for name in ("sensitive", "joint", "rounded", "epsilon_per_rado", "epsilon", "norm_bound", "support"):
            if getattr(self, name) not in (None, False, ()) and name not in allowed:
                words = f"{self.design}{' with joint' if self.joint else ''}"
                raise ConfigurationError(f"{words} takes no {name}; leave it out or choose another design")
        self._check_needs()

    def _check_needs(self) -> None:
        if self.rados is None and (self.design != "dp-feat" or self.joint or self.epsilon is None):
            raise ConfigurationError(
                f"{self.design} needs the number of rados; only dp-feat without joint chooses it, to stay within an "
                "epsilon"
            )
        if self.design == "dp-feat" and not self.sensitive_names:
            choices = ", ".join(self.schema.boolean_coordinates) or "none; declare a boolean or threshold feature"
            raise ConfigurationError(f"dp-feat needs a sensitive feature; those of the schema: {choices}")
        if self.joint and len(self.sensitive_names) != 1:
            raise ConfigurationError("joint dp-feat protects one source column; name one as sensitive")
        if (self.joint or self.design == "gaussian") and self.epsilon is None:
            words = f"{self.design}{' with joint' if self.joint else ''}"
            raise ConfigurationError(f"{words} adds noise: give the epsilon that it is to stay within")

    @property
    def sensitive_names(self) -> tuple[str, ...]:
        """The sensitive features, as named."""
        if self.sensitive is None:
            return ()
        return (self.sensitive,) if isinstance(self.sensitive, str) else self.sensitive


@dataclass(frozen=True, kw_only=True)
class NoisyTerms(Terms):
    """What every request may set whose answer has noise on each value, which protects records.

    epsilon: as in `RadosRequest`. part: the fraction of what (epsilon, delta) allows that this release takes, the rest
    being for others: of the squared mu of Gaussian noise, so that releases whose parts add up to 1 are (epsilon,
    delta)-private together. Raises ConfigurationError.
    """

    epsilon: Fraction
    part: Fraction = Fraction(1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.part > 1:
            raise ConfigurationError(f"part is {self.part}; one release takes at most all of what is allowed, 1")


@dataclass(frozen=True, kw_only=True)
class MomentsRequest(NoisyTerms):
    """What a learner wants: the first two moments of all rados.

    norm_bound: R; by default what most records of the schema stay below. edge_weight: a, how much more precisely edges
    are released than products; None chooses by R. Raises ConfigurationError.
    """

    norm_bound: Fraction | None = None
    edge_weight: Fraction | None = None


@dataclass(frozen=True, kw_only=True)
class StatisticRequest(NoisyTerms):
    """What a learner wants: the sums of predicates over all records.

    predicates: typed against the schema. pure: Laplace noise alone, whose delta is 0; otherwise the smaller of
    Laplace's and Gaussian noise for this batch. `part` is of epsilon where `pure`, and a part below 1 takes Laplace
    noise only there. Raises ConfigurationError.
    """

    predicates: tuple[Predicate, ...] = field(kw_only=False)
    pure: bool = False


@dataclass(frozen=True, kw_only=True)
class GradientRequest(NoisyTerms):
    """What a learner wants: the sum over all records of the clipped gradient of a loss.

    theta: (d,), where it is taken, as reals; coordinates are rounded to 2^-20. clip: C, no record's gradient is longer;
    a gradient without one is refused, as nothing would bound what a record tells. basis: see dpcore.queries.gradient;
    theta is then in its coordinates. Raises ConfigurationError.
    """

    theta: tuple[float, ...] = field(kw_only=False)
    loss: Loss = "logistic"
    clip: Fraction | None = None
    basis: Basis | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.clip is None:
            raise ConfigurationError(
                "a gradient without a clip bounds nothing: give the longest that a record's may be"
            )
        if len(self.theta) != self.schema.d or not all(math.isfinite(value) for value in self.theta):
            raise ConfigurationError(f"theta is no {self.schema.d} finite numbers: give one for each coordinate")


Request = RadosRequest | MomentsRequest | StatisticRequest | GradientRequest
