"""A series of questions of which each may depend on the answers before it, and the tolerance that each answer keeps.

The series decides once, before its first question, by which way its tolerances hold (`dpcore.statistics.adaptive`).
Every tolerance fails with probability at most (1 - confidence) / k, so that all k hold together.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dpcore.accounting.gaussian import ShiftDistribution
from dpcore.accounting.local_response import LocalResponse
from dpcore.accounting.mixed import PureLoss
from dpcore.accounting.protection import WHOLE
from dpcore.errors import ConfigurationError, PlanError
from dpcore.numbers.rationals import rounded_up
from dpcore.queries.statistic import StatisticQuery
from dpcore.records.held_back import HeldBack
from dpcore.statistics.accuracy import PLAIN, Batch, SharedNoise
from dpcore.statistics.adaptive import Adaptive, Leak, PosteriorNoise, Way, nats
from radobase.printing import amount
from wire.query import Query, setting_of

if TYPE_CHECKING:
    from learner.answer_source import Answer

TRIVIAL = 0.5
"""The tolerance of the constant 1/2."""


def premise_of(questions: int, way: Way) -> str:
    """When the tolerances of so many questions hold, as a clause."""
    return (
        f"for all of up to {questions} questions together, each of which earlier answers may have chosen, because "
        f"{way.words}"
    )


class Series:
    """At most k questions about the rows of a part and an epoch, None for all of them; of persons, or of records.

    Answers that the learner has from elsewhere count by what they are about ("Adaptive questions" in
    docs/explanation/proofs.md): not at all, if it is another epoch, or as the number of the rows that are asked, if it
    is a part without any of them.
    """

    def __init__(
        self, adaptive: Adaptive, whole: HeldBack | None, epoch: str | None = None, *, is_of_persons: bool = False
    ) -> None:
        self._adaptive, self._whole, self._epoch, self._is_of_persons = adaptive, whole, epoch, is_of_persons
        self._way, self._decided = adaptive.way, False
        self._asked, self._pieces_only, self._beside = 0, True, False
        self._leak, self._nats = Leak(), 0.0

    @property
    def is_open(self) -> bool:
        """Whether no question was planned yet."""
        return not self._decided

    @property
    def premise(self) -> str:
        """When they hold, as a clause."""
        assert self._way is not None, "a series has a way from its first question on"
        return premise_of(self._adaptive.questions, self._way)

    def part(self) -> HeldBack | None:
        """The rows that the next question is about. Raises ConfigurationError if all questions were asked."""
        self._check_left()
        self._check_known(self._way)
        if self._way is not Way.SPLIT:
            return self._whole
        return HeldBack.piece_of(self._whole, self._adaptive.questions, self._asked)

    def failure(self, confidence: float) -> float:
        """The probability with which one question's tolerance may fail."""
        return (1 - confidence) / self._adaptive.questions

    def decide(self, query: Query, batch: Batch, parties: int, rows: int, confidence: float) -> None:
        """Choose the way, if it is open: the smallest tolerance of the last question, if all are like this one.

        Raises PlanError if that promises no more than the constant 1/2 keeps.
        """
        if not rows:
            raise PlanError(
                "no party states its rows in the roster (rado provision init --party NAME=ROWS), so adaptive questions "
                "have no tolerance before they are asked: state rows, or leave adaptive out"
            )
        failure, leak = self.failure(confidence), _leak_of(query, [rows // parties or 1] * parties)
        found = {way: self._last(way, batch, leak, rows, failure) for way in Way}
        way = self._way or min(found, key=lambda each: found[each])
        self._check_known(way)
        tolerance = min(found[way], 1.0)
        if tolerance >= TRIVIAL:
            questions = amount(self._adaptive.questions, "adaptive question")
            raise PlanError(
                f"{amount(rows, 'row')} are too few for {questions}: the last answer would be within "
                f"{rounded_up(tolerance)} of the truth, and the constant 1/2 always is within 1/2; "
                "ask fewer questions or fewer statistics in each, or add rows"
            )
        self._way, self._decided = way, True

    def _last(self, way: Way, batch: Batch, leak: Leak, rows: int, failure: float) -> float:
        questions = self._adaptive.questions
        last = questions - self._asked - 1
        if way is Way.SPLIT:
            if not self._pieces_only:
                return math.inf
            return replace(batch, share=batch.share / questions, is_fresh=True).half_widths(rows, failure).tolerance
        if way is Way.PRIVACY:
            told = self._leak + leak.times(last + 1)
            return self._masked(batch, told, failure).half_widths(rows, failure).tolerance
        each = _nats_of(batch, rows)
        width = 0.0
        # From below to the least fixed point, where answers before are as close as the last.
        for _ in range(200):
            told_nats = self._nats + last * each(width * rows)
            widths = replace(batch, information=told_nats, is_fresh=self._beside).half_widths(rows, failure)
            before, width = width, widths.sampling / batch.amplification.sampling * batch.share
            if width - before <= 1e-6 * width or width >= 1:
                break
        return widths.tolerance

    def widths(self, query: Query, batch: Batch, party_rows: Sequence[int], failure: float) -> Batch:
        """The batch whose half-widths hold for an answer to this question, over these rows."""
        if self._way is Way.SPLIT:
            return replace(batch, is_fresh=True)
        if self._way is Way.INFORMATION:
            return replace(batch, information=self._nats, is_fresh=self._beside)
        if self._way is Way.PRIVACY and self._leak != Leak():
            return self._masked(batch, self._leak + _leak_of(query, party_rows), failure)
        return batch

    def _masked(self, batch: Batch, leak: Leak, failure: float) -> Batch:
        noise = batch.noise
        assert isinstance(noise, SharedNoise), "answers of parties have their noise"
        return replace(batch, bias=leak.bias(failure / 2.0), noise=PosteriorNoise(noise))

    def ask(self) -> None:
        """Count a question that is being sent, whatever becomes of it: its rows are used."""
        self._check_left()
        self._asked += 1

    def take_back(self) -> None:
        """The question that was counted last was not sent."""
        self._asked -= 1

    def answered(self, answer: "Answer", batch: Batch, rows: int, failure: float) -> None:
        """Count what an answer to this series tells. batch: as of `widths`."""
        self._leak += _leak_of(answer.query, list(answer.party_rows.values()))
        if self._way is Way.INFORMATION:
            sampling = batch.half_widths(rows, failure).sampling
            # The sum is in this interval unless the answer's own half-width for sampling failed.
            width = sampling / batch.amplification.sampling * batch.share * rows
            self._nats += _nats_of(batch, rows)(width)

    def count(self, answer: "Answer") -> None:
        """Count an answer of the learner's that is not to a question of this series."""
        query, rows = answer.query, sum(answer.party_rows.values())
        if None not in (self._epoch, query.epoch) and self._epoch != query.epoch:
            return
        kind = query.kind
        # Nothing bounds what an answer about records tells about a person.
        is_bounded = query.persons is not None or not self._is_of_persons
        leak = _leak_of(query, list(answer.party_rows.values())) if is_bounded else Leak(math.inf, math.inf)
        self._leak += leak
        # Rows outside of its part enter other answers, such as local ones.
        is_of_part = query.held_back is not None and kind.protection(setting_of(query)).is_of_part
        if is_of_part and self._whole is not None and self._whole.is_disjoint(query.held_back):
            self._beside = True
            return
        if isinstance(kind, StatisticQuery) and not isinstance(kind.noise, LocalResponse):
            noise = SharedNoise(kind.noise, len(answer.party_rows), kind.unit_bits(query.encoding.fraction_bits))
            self._nats += len(kind.predicates) * nats(noise, rows / 2)
            self._pieces_only &= query.held_back == self._piece(self._asked)
            self._asked += 1
        else:
            self._nats, self._pieces_only = math.inf, False
        if not self._decided:
            self._way = self._adaptive.way or (Way.SPLIT if self._pieces_only else None)

    def _piece(self, number: int) -> HeldBack | None:
        """Piece `number` of the rows; None beyond the last."""
        count = self._adaptive.questions
        return HeldBack.piece_of(self._whole, count, number) if number < count else None

    def _check_known(self, way: Way | None) -> None:
        """Raise PlanError if no tolerance would hold this way beside the other answers about these rows."""
        if way is Way.SPLIT and not self._pieces_only:
            raise PlanError(
                "answers about all of these rows are known already, so no piece of them is fresh: choose another way"
            )
        if way is Way.INFORMATION and self._nats == math.inf:
            raise PlanError(
                "answers about these rows that are no statistics are known already, and what they tell is not counted "
                "in nats: choose another way"
            )

    def _check_left(self) -> None:
        if self._asked >= self._adaptive.questions:
            raise ConfigurationError(
                f"{amount(self._adaptive.questions, 'adaptive question')} were asked, so the tolerances of more would "
                "not hold together: start with a larger number of adaptive questions"
            )


def _nats_of(batch: Batch, rows: int) -> Callable[[float], float]:
    """What an answer tells, in nats, whose sums are within a width of what is expected."""
    noise, count = batch.noise, batch.asked or batch.queries
    assert isinstance(noise, SharedNoise), "answers of parties have their noise"
    if batch.amplification != PLAIN:
        # The half-widths are of corrected answers. Each sum is between 0 and the rows.
        return lambda _: count * nats(noise, rows / 2)
    return lambda width: count * nats(noise, min(width, rows / 2))


def _leak_of(query: Query, party_rows: Sequence[int]) -> Leak:
    """What an answer tells about its unit of privacy, to one who sees answers only; infinite if nothing is bounded."""
    protection = query.kind.protection(setting_of(query))
    if protection.scope in WHOLE:
        found = protection.distribution_for(party_rows, min(party_rows), query.delta, colluding=False)
        if isinstance(found, ShiftDistribution | PureLoss):
            return Leak.of(found)
    return Leak(math.inf, math.inf)
