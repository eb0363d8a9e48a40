"""The estimates of answers to batches of predicates, with half-widths that count sampling, rounding and noise."""

from dataclasses import dataclass, replace
from typing import TypeVar

from dpcore.accounting.local_response import LocalResponse
from dpcore.errors import ConfigurationError, PlanError
from dpcore.estimators.oracle import failure_of
from dpcore.numbers.rationals import rounded_up
from dpcore.queries.statistic import StatisticQuery
from dpcore.records.held_back import HeldBack
from dpcore.statistics.accuracy import (
    PLAIN,
    Batch,
    Correction,
    Estimates,
    HalfWidths,
    LocalNoise,
    SharedNoise,
    corrected_batch,
)
from dpcore.statistics.adaptive import Way
from learner.adaptive import premise_of
from learner.answer_source import Answer, rows_about
from learner.planning import Plan
from radobase.printing import amount
from wire.query import Query

Kind = TypeVar("Kind")


@dataclass(frozen=True)
class Widths:
    """What determines the half-widths of a batch, for a number of parties."""

    batch: Batch
    failure: float
    part: HeldBack | None = None
    """Of the rows, None for all."""

    def of(self, rows: int) -> HalfWidths:
        """The half-widths over all of the parties' `rows` rows, of which the answers may be about a part.

        With n = `part.rows(rows)` the answers are the sum over rows of [in the part] phi, over m, times m / n. `batch`
        divides by p m; p m / n is within 1 / (2 n) of 1, and E[phi] in [0, 1].
        """
        found = self.batch.half_widths(rows, self.failure)
        if self.part is None:
            return found
        factor = float(self.part.chance * rows / self.part.rows(rows))
        rounded = abs(factor - 1)
        return HalfWidths(factor * found.sampling, factor * found.quantisation + rounded, factor * found.noise)

    def check(self, tolerance: float | None, rows: int) -> None:
        """Raise PlanError if `rows` rows cannot keep the tolerance; the error gives a number that can."""
        if tolerance is None:
            return
        if not rows:
            raise PlanError(
                "no party states its rows in the roster (rado provision init --party NAME=ROWS), so a tolerance cannot "
                "be checked in advance: leave it out, and read the half-widths of the estimates"
            )
        if self.of(rows).tolerance > tolerance:
            raise PlanError(
                f"{amount(rows, 'row')} cannot keep a tolerance of {tolerance:g} with probability "
                f"{1 - self.failure:g}: {self._remedy(tolerance)}a tolerance of {rounded_up(self.of(rows).tolerance)}"
            )

    def _remedy(self, tolerance: float) -> str:
        if self.batch.bias is not None and self.batch.bias >= tolerance * self.batch.share:
            return "no number of rows would at this noise, but "
        needed = self.batch.rows(tolerance, self.failure)
        while self.of(needed).tolerance > tolerance:  # by the rounding of the rows of a part
            needed += 1 + needed // 10_000
        return f"{needed} rows would, or "


def estimates_of(answer: Answer, *, confidence: float = 0.95) -> Estimates:
    """The estimates of an answer to `BudgetedOracle.statistic`, such as a saved release; nothing is asked.

    Raises ConfigurationError if the answer is of another kind, or the confidence is out of range.
    """
    check_open_interval("confidence", confidence)
    kind = answer.query.kind
    if not kind.batch:
        raise ConfigurationError(f"this is a release of {kind.contents}: give one of statistics")
    _, correction = corrected_batch(kind.batch, 0.0)
    about = answer.query.held_back
    if about is None or not about.pieces:
        return estimates(answer, correction, confidence)
    # One question of a series, whose rows are its own: the piece says how many questions there are.
    batch = replace(batch_of(answer.query, correction, len(answer.party_rows)), is_fresh=True)
    widths = Widths(batch, failure_of(confidence, about), about)
    premise = premise_of(about.pieces, Way.SPLIT)
    return replace(estimates(answer, correction, confidence, widths), premise=premise)


def estimates(answer: Answer, correction: Correction, confidence: float, widths: Widths | None = None) -> Estimates:
    """The estimates of an answer, with these half-widths or those of a question that nothing was asked before."""
    kind = kind_of(answer.query, StatisticQuery)
    every, bits = sum(answer.party_rows.values()), answer.query.encoding.fraction_bits
    if widths is None:
        batch = batch_of(answer.query, correction, len(answer.party_rows))
        widths = Widths(batch, 1 - confidence, answer.query.held_back)
    found = widths.of(every)
    noise, rows = _noise(kind, len(answer.party_rows), bits), rows_about(answer)
    sums = kind.decode(answer.integers, bits)
    if isinstance(noise, LocalNoise):
        # Rows outside a part answer too.
        noise, sums = noise.over(every), noise.response.unbiased(sums, every)
    return Estimates(
        values=correction.apply(sums / rows),
        rows=rows,
        confidence=confidence,
        sampling=found.sampling,
        quantisation=found.quantisation,
        noise=found.noise,
        deviation=correction.amplification.deviation * noise.deviation / rows,
        distribution=noise if correction.amplification == PLAIN else None,
        most_rows=every,
    )


def stated_parties(plan: Plan) -> int:
    """The number of parties that a plan counts on."""
    return len(plan.party_rows or ()) or plan.query.honest_parties


def batch_of(query: Query, correction: Correction, parties: int) -> Batch:
    """The half-widths of an answer, as if nothing had been asked before."""
    kind = kind_of(query, StatisticQuery)
    bits = query.encoding.fraction_bits
    quantisation = 0.0 if kind.is_boolean else 2.0**-bits
    batch = correction.batch(_noise(kind, parties, bits), quantisation)
    return batch if query.held_back is None else replace(batch, share=float(query.held_back.chance))


def _noise(kind: StatisticQuery, parties: int, fraction_bits: int) -> SharedNoise | LocalNoise:
    """On each sum, from so many parties; of local answers over one row."""
    if isinstance(kind.noise, LocalResponse):
        return LocalNoise(kind.noise)
    return SharedNoise(kind.noise, parties, kind.unit_bits(fraction_bits))


def kind_of(query: Query, expected: type[Kind]) -> Kind:
    """The kind of an answer's query, which is this one."""
    kind = query.kind
    assert isinstance(kind, expected), "an answer is of the kind that was asked"
    return kind


def check_open_interval(name: str, value: float) -> None:
    """Raise ConfigurationError unless it is between 0 and 1."""
    if not 0 < value < 1:
        raise ConfigurationError(f"{name} is {value}: choose a number between 0 and 1")
