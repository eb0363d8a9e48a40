"""The state of a query between two events: the rules of all its attempts, and where the present one stands.

What changes it: coordinator/rounds.py.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from coordinator.events import PartyAnswer
from dpcore.paillier.survivors import threshold
from wire.errors import Code, WireError
from wire.status import PartyState, Phase

OPEN_COHORT = (Phase.ANSWERING, Phase.PREPARING)
"""Before the cohort is fixed."""


@dataclass(frozen=True)
class Rules:
    """Rules of the signed query and the roster for all attempts. Durations are in seconds.

    Raises WireError(QUERY_INVALID) if the query asks fewer parties than a cohort needs.
    """

    parties: tuple[str, ...]
    """Those that the query asks, in the roster's order."""
    cohort_min: int
    max_parties: int
    max_rows: int
    answer_within_s: float
    prepare_within_s: float
    upload_within_s: float
    max_attempts: int
    quorum_wait_s: float | None = None
    """How long to wait for further parties once there are enough for a cohort; None: for the whole phase."""
    only_asks: bool = False
    """Whether it is a question, which ends with the parties' answers."""
    may_vanish: int = 0
    """How many of those that accepted may vanish, so that the rest still has a total."""

    def __post_init__(self) -> None:
        if len(set(self.parties)) != len(self.parties) or not 1 <= self.cohort_min <= self.max_parties:
            raise WireError(
                Code.QUERY_INVALID, "Parties must be distinct, and cohort_min must be from 1 to max_parties."
            )
        if self.cohort_min > len(self.parties):
            raise WireError(
                Code.QUERY_INVALID,
                f"cohort_min is {self.cohort_min}, and the query asks {len(self.parties)} parties of the roster.",
            )


@dataclass(frozen=True)
class Round:
    """State of a query. Valid from construction: raises ValueError otherwise (a bug, or a damaged store).

    answers, ready, cohort, receipts, pending and answering_ended_early belong to the current attempt. Mappings are
    never changed in place.
    """

    rules: Rules
    expires_at: float
    deadline: float
    """Of the phase."""
    attempt: int = 1
    phase: Phase = Phase.ANSWERING
    answers: Mapping[str, PartyAnswer] = field(default_factory=dict)
    ready: frozenset[str] = frozenset()
    cohort: tuple[str, ...] = ()
    receipts: Mapping[str, str] = field(default_factory=dict)
    code: str = ""
    detail: str = ""
    pending: frozenset[str] = frozenset()
    """Every party that said that a person has to decide, also after it answered."""
    quorum_deadline: float | None = None
    """When the wait for further parties ends, None while there are too few for a cohort, and if the query sets no such
    wait."""
    answering_ended_early: bool = False
    """Before its deadline and without everybody's answer."""
    sharing: tuple[str, ...] = ()
    """If members may vanish: those that had accepted when parties began to prepare, in the roster's order."""
    shared: Mapping[str, str] = field(default_factory=dict)
    """Digests of the shares that they dealt."""
    gone: frozenset[str] = frozenset()
    """Members of the cohort that gave up, or that a newer roster no longer lists, if members may vanish."""
    survivors: tuple[str, ...] = ()
    """If members may vanish: those whose uploads are added, in the cohort's order."""
    unmaskings: Mapping[str, str] = field(default_factory=dict)
    """Digests of what they revealed."""

    def __post_init__(self) -> None:
        rules = self.rules
        checks = (
            1 <= self.attempt <= rules.max_attempts,
            math.isfinite(self.deadline) and math.isfinite(self.expires_at),
            set(self.answers) | self.pending <= set(rules.parties),
            all(self._accepted(party) for party in self.ready),
            len(set(self.cohort)) == len(self.cohort) and self.ready.issuperset(self.cohort),
            set(self.receipts) <= set(self.cohort),
            not self.cohort or rules.cohort_min <= len(self.cohort) <= rules.max_parties,
            sum(self.answers[party].rows for party in self.cohort) <= rules.max_rows,
            self.phase is Phase.FAILED or bool(self.cohort) == (self.phase not in OPEN_COHORT),
            self.phase not in (Phase.UNMASKING, Phase.ADDING, Phase.COMPLETE) or set(self.summed) <= set(self.receipts),
            bool(self.code) == (self.phase is Phase.FAILED),
            self.quorum_deadline is None or (self._may_wait_for_others and math.isfinite(self.quorum_deadline)),
            set(self.shared) <= set(self.sharing) <= set(self.answers),
            set(self.cohort) <= set(self.sharing) or not rules.may_vanish,
            set(self.survivors) <= set(self.cohort) and set(self.unmaskings) <= set(self.survivors),
            self.phase is not Phase.UNMASKING or bool(self.survivors),
            not self.survivors or len(self.survivors) >= self.needed,
        )
        if not all(checks):
            raise ValueError(f"a round in {self.phase.name} contradicts itself")

    def _accepted(self, party: str) -> bool:
        answer = self.answers.get(party)
        return answer is not None and answer.accepted

    @property
    def _may_wait_for_others(self) -> bool:
        return self.phase in OPEN_COHORT or (
            self.rules.may_vanish > 0 and self.phase in (Phase.UPLOADING, Phase.UNMASKING)
        )

    @property
    def needed(self) -> int:
        """The fewest members that a cohort, and once it is fixed a total, needs."""
        rules = self.rules
        if not rules.may_vanish or not self.sharing:
            return rules.cohort_min
        return threshold(len(self.sharing), cohort_min=rules.cohort_min, may_vanish=rules.may_vanish)

    @property
    def summed(self) -> tuple[str, ...]:
        """The members of the cohort whose uploads are added."""
        return self.survivors if self.rules.may_vanish else self.cohort

    @property
    def awaited(self) -> tuple[str, ...]:
        """The members of the cohort whose uploads are waited for."""
        return self.survivors or tuple(party for party in self.cohort if party not in self.gone)

    @property
    def acceptors(self) -> tuple[str, ...]:
        """Parties that accepted this attempt, in the roster's order."""
        accepted = tuple(party for party in self.rules.parties if self._accepted(party))
        return tuple(party for party in accepted if party in self.sharing) if self.sharing else accepted

    @property
    def ends_at(self) -> float:
        """When the current phase times out, unless it is terminal."""
        ends = min(self.deadline, self.expires_at)
        return ends if self.quorum_deadline is None else min(ends, self.quorum_deadline)

    def remaining_s(self, now: float) -> float:
        """Seconds until the current phase times out; 0 in a terminal phase."""
        return 0.0 if self.phase.is_terminal else max(0.0, self.ends_at - now)

    def party_state(self, party: str) -> PartyState:
        """State of a party in the current attempt."""
        answer = self.answers.get(party)
        if answer is None:
            return PartyState.PENDING if party in self.pending else PartyState.SILENT
        if not answer.accepted:
            return PartyState.REFUSED
        if not self.cohort:
            return PartyState.READY if party in self.ready else PartyState.ACCEPTED
        return self._member_state(party)

    def _member_state(self, party: str) -> PartyState:
        """State of a party that accepted, once the cohort is fixed."""
        if party not in self.cohort:
            return PartyState.LEFT_OUT
        if party in self.gone or (self.survivors and party not in self.survivors):
            return PartyState.VANISHED
        if party in self.unmaskings:
            return PartyState.UNMASKED
        return PartyState.UPLOADED if party in self.receipts else PartyState.UPLOADING

    def to_dict(self, now: float) -> dict[str, Any]:
        """For the store: safe for JSON. Stores remaining times, which are valid on any clock."""
        return {
            "rules": asdict(self.rules),
            "remaining_s": 0.0 if self.phase.is_terminal else max(0.0, min(self.deadline, self.expires_at) - now),
            "quorum_remaining_s": None if self.quorum_deadline is None else max(0.0, self.quorum_deadline - now),
            "attempt": self.attempt,
            "phase": self.phase.name,
            "answers": {party: asdict(answer) for party, answer in self.answers.items()},
            "ready": sorted(self.ready),
            "cohort": list(self.cohort),
            "receipts": dict(self.receipts),
            "code": self.code,
            "detail": self.detail,
            "pending": sorted(self.pending),
            "answering_ended_early": self.answering_ended_early,
            "sharing": list(self.sharing),
            "shared": dict(self.shared),
            "gone": sorted(self.gone),
            "survivors": list(self.survivors),
            "unmaskings": dict(self.unmaskings),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], *, now: float, expires_at: float) -> "Round":
        """The inverse of to_dict, on the clock of `now`. Raises ValueError, KeyError or TypeError on damage."""
        rules = Rules(**{**data["rules"], "parties": tuple(data["rules"]["parties"])})
        quorum_remaining_s = data["quorum_remaining_s"]
        return cls(
            rules=rules,
            expires_at=expires_at,
            deadline=now + data["remaining_s"],
            attempt=data["attempt"],
            phase=Phase[data["phase"]],
            answers={party: PartyAnswer(**answer) for party, answer in data["answers"].items()},
            ready=frozenset(data["ready"]),
            cohort=tuple(data["cohort"]),
            receipts=dict(data["receipts"]),
            code=data["code"],
            detail=data["detail"],
            pending=frozenset(data["pending"]),
            quorum_deadline=None if quorum_remaining_s is None else now + quorum_remaining_s,
            answering_ended_early=data["answering_ended_early"],
            # A store of version 0.3.0 or before has none of these.
            sharing=tuple(data.get("sharing", ())),
            shared=dict(data.get("shared", {})),
            gone=frozenset(data.get("gone", ())),
            survivors=tuple(data.get("survivors", ())),
            unmaskings=dict(data.get("unmaskings", {})),
        )
