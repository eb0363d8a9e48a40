"""The cost of a plan, as data and as sentences."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from dpcore.accounting.protection import Scope
from dpcore.numbers.rationals import up, upper_digits
from radofed.planning.request import PlanRequest, Sizes
from radofed.planning.signal import Noise, Signal

_UNITS: dict[Scope, str] = {
    "none": "one record",
    "marginal": "one record's value of the sensitive coordinate",
    "joint": "one record's cell of the sensitive source column",
    "record": "one record",
}
_PROTECTED = {
    "marginal": "for one record's value of the sensitive coordinate, within that coordinate's own values",
    "joint": "for one record's cell of the sensitive source column, within the whole release, and only for it",
    "record": "for one whole record",
}


MOST_LOOKED_FOR = 100_000
"""The most rados that are looked for: more take seconds to count, and few queries have so many."""

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
    assumptions: tuple[str, ...] = ()
    """Of the bound."""

    @property
    def unit(self) -> str:
        """The unit of privacy: what two neighbouring tables differ in."""
        return _UNITS[self.scope]

    @property
    def questions(self) -> tuple[Any, ...]:
        """What is asked, whatever the noise: a design asks the same at every epsilon."""
        return ()

    def to_dict(self) -> dict[str, Any]:
        """Every figure by name, in JSON's types; those of `noise` and `sizes` only if there are any."""
        request = self.request
        return {
            "design": request.design_name,
            "joint": request.joint,
            "split": request.split,
            "scope": self.scope,
            "feasible": self.feasible,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "theorem_epsilon": self.theorem_epsilon,
            "delta_per_rado": self.delta_per_rado,
            "epsilon_if_others_collude": self.epsilon_if_others_collude,
            "marginal_epsilon": self.marginal_epsilon,
            "marginal_epsilon_if_others_collude": self.marginal_epsilon_if_others_collude,
            "rados": request.rados,
            "party_rows": list(request.party_rows),
            "acceptance_rate": self.acceptance_rate,
            "largest_rados": self.largest_rados,
            "smallest_epsilon": self.smallest_epsilon,
            "reason": self.reason,
            "suggestion": self.suggestion,
            "unit": self.unit,
            "assumptions": list(self.assumptions),
            "warning": self.warning,
            **({} if self.signal is None else self.signal.to_dict()),
            **({} if self.noise is None else asdict(self.noise)),
            **({} if self.sizes is None else asdict(self.sizes)),
        }

    def sentences(self) -> list[str]:
        """The cost as sentences."""
        warning = [] if self.warning is None else [f"Warning: {self.warning}"]
        assumed = [] if self.epsilon is None else [f"Assumed: {text}" for text in self.assumptions]
        return [self._what(), *self._privacy(), *self._counts(), *self._noise(), *warning, *self._effort(), *assumed]

    def _what(self) -> str:
        request, parties = self.request, len(self.request.party_rows)
        over = "one pool" if parties == 1 else f"{parties} parties with {request.rows} rows in total"
        what = "Moments" if request.rados is None else f"{many_rados(request.rados)} of design {request.words}"
        if request.feature_map is not None and request.schema is not None:
            what += f" of records mapped to {request.feature_map.words(request.schema)},"
        head = f"{what} over {over}"
        if parties == 1:
            return f"{head} of {request.rows} rows: for accounting only, since no cohort has one party."
        if request.split == "exact":
            return f"{head}, split exact: in simulation only, with a coordinator that is honest and tells no one."
        return f"{head}."

    def _privacy(self) -> Iterator[str]:
        if not self.feasible:
            yield f"This query is not possible: {self.reason}. What would work: {self.suggestion}."
            if self.epsilon is not None:
                yield f"Against the learner alone epsilon would be {up(self.epsilon)} at delta {self.delta:.3g}."
        elif self.epsilon is None or self.epsilon_if_others_collude is None:
            yield (
                f"Warning: {self.request.words} rados{' without noise' * (self.request.design != 'plain')} have "
                "no bound. No differential privacy is claimed, and parties refuse them unless their policy allows "
                "unprotected rados."
            )
        else:
            yield (
                f"Against the learner alone epsilon is {up(self.epsilon)} at delta {self.delta:.3g}, "
                f"{_PROTECTED[self.scope]}."
            )
            if len(self.request.party_rows) > 1:
                yield self._collusion(up(self.epsilon_if_others_collude))
        if self.marginal_epsilon is not None and self.marginal_epsilon_if_others_collude is not None:
            yield (
                f"Each single coordinate coded -1/+1 is bounded, within its own values: epsilon "
                f"{up(self.marginal_epsilon)} at delta {float(self.request.delta):.3g} against the learner"
                + (
                    "."
                    if len(self.request.party_rows) == 1
                    else f", {up(self.marginal_epsilon_if_others_collude)} if all others work with it."
                )
            )

    def _collusion(self, figure: str) -> str:
        request = self.request
        if request.design_name == "fixed-support":
            return (
                "If the coordinator and the other parties work with the learner, it is the same: noise is not shared."
            )
        if self.noise is not None:
            colluding = len(request.party_rows) - self.noise.honest_parties
            parties = f" and {_several(colluding, 'party', 'parties')}" if colluding else ""
            return f"If the coordinator{parties} {'work' if colluding else 'works'} with the learner, it is {figure}."
        who = "the other parties" if request.split == "exact" else "the coordinator and the other parties"
        return f"If {who} work with the learner, it is {figure} for the worst party."

    def _counts(self) -> Iterator[str]:
        request = self.request
        if self.theorem_epsilon is not None:
            yield f"Theorem 6 alone would say {self.theorem_epsilon:.6g}."
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
                f"{upper_digits(noise.product_noise_sd, 4)} to each sum of "
                f"products, over {self.request.rows:,} rows; sampling alone spreads such a sum by {noise.spread:.4g}."
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
        if self.sizes is not None:
            yield (
                f"Each party uploads {_several(self.sizes.ciphertexts, 'ciphertext', 'ciphertexts')} under a "
                f"{self.request.key_bits}-bit key, {self.sizes.upload_bytes_per_party:,} bytes: slots of "
                f"{self.sizes.slot_bits} bits, values with {self.sizes.fraction_bits} fraction bits. Encrypting, "
                f"adding and decrypting take about {_seconds(self.sizes.estimated_seconds)} s, by measurements on "
                "two cores, without the draw of rados and the network."
            )


def many_rados(count: int) -> str:
    """A number of rados, in words."""
    return "1 rado" if count == 1 else f"{count} rados"


def _several(count: int, one: str, more: str) -> str:
    return f"{count:,} {one if count == 1 else more}"


def _seconds(seconds: float) -> str:
    """Two significant digits, without an exponent."""
    return f"{float(f'{seconds:.2g}'):,.15g}"
