"""What the kit found: one finding for each thing that was tried, by section of docs/protocol.md."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

SECTIONS = {
    "1": "Connection",
    "2": "Envelopes",
    "3": "Roster",
    "4": "Schema",
    "5": "Query",
    "6": "Numbers",
    "7": "A party's part",
    "8": "A learner's part",
}
"""Of docs/protocol.md, those that the kit tries."""


class UnmetError(Exception):
    """What a case needs did not happen, so it ends. section: of the rule that was not met."""

    def __init__(self, section: str, sentence: str) -> None:
        self.section, self.sentence = section, sentence
        super().__init__(sentence)


@dataclass(frozen=True)
class Finding:
    """One thing that was tried."""

    section: str
    """Such as "6", or "7" with the step: "7.4"."""
    what: str
    """What must hold, as a clause."""
    passed: bool | None
    """None if it was not tried, because the one under test does not do such things."""
    detail: str = ""
    """What was seen instead, or a remark."""

    @property
    def sentence(self) -> str:
        """In a line."""
        said = f": {self.detail}" if self.detail else ""
        return f"{_WORDS[self.passed]} [{self.section}] {self.what}{said}"

    def to_dict(self) -> dict[str, Any]:
        """In JSON types."""
        outcome = _WORDS[self.passed].lower()
        return {"section": self.section, "what": self.what, "outcome": outcome, "detail": self.detail}


_WORDS: dict[bool | None, str] = {True: "passed", False: "FAILED", None: "skipped"}


@dataclass
class Findings:
    """All findings of a run, in order. on_each: called with each."""

    on_each: Callable[[Finding], None] = lambda _: None
    found: list[Finding] = field(default_factory=list)

    def add(self, section: str, what: str, passed: bool | None, detail: str = "") -> bool:
        """Note one. Returns whether it passed."""
        finding = Finding(section, what, passed, detail)
        self.found.append(finding)
        self.on_each(finding)
        return bool(passed)

    @property
    def failed(self) -> tuple[Finding, ...]:
        """Those that failed."""
        return tuple(each for each in self.found if each.passed is False)

    @property
    def conforms(self) -> bool:
        """Whether something was tried and nothing failed. It may still not be complete."""
        return any(each.passed for each in self.found) and not self.failed

    @property
    def not_played(self) -> tuple[Finding, ...]:
        """What was not tried, with the reason as its detail. A run shows nothing of it."""
        return tuple(each for each in self.found if each.passed is None)

    @property
    def complete(self) -> bool:
        """Whether it conforms in all that the kit can try."""
        return self.conforms and not self.not_played

    def sentences(self) -> list[str]:
        """For people: by section, what failed first, then what else there is to say."""
        lines = []
        for number, title in SECTIONS.items():
            own = [each for each in self.found if each.section.split(".")[0] == number]
            if own:
                lines += [f"{number}. {title}: {_counted(own)}", *_remarks(own)]
        return [*lines, *self._verdict()]

    def _verdict(self) -> list[str]:
        if not self.conforms:
            return [f"does not conform: {_counted(self.found)}"]
        if self.complete:
            return ["conforms: all parts were played, and nothing failed"]
        count = len(self.not_played)
        parts = "1 thing was NOT played" if count == 1 else f"{count} things were NOT played"
        listed = [f"  not played [{each.section}] {each.what}: {each.detail}" for each in self.not_played]
        return [
            f"conforms in what was played: nothing failed. {parts}, and nothing is shown of what these are about:",
            *listed,
        ]

    def to_dict(self) -> dict[str, Any]:
        """In JSON types."""
        said = {"conforms": self.conforms, "complete": self.complete, **_counts(self.found)}
        not_played = [{"section": each.section, "what": each.what, "why": each.detail} for each in self.not_played]
        return {**said, "not_played": not_played, "findings": [each.to_dict() for each in self.found]}


def _counts(found: Sequence[Finding]) -> dict[str, int]:
    return {word.lower(): sum(each.passed is value for each in found) for value, word in _WORDS.items()}


def _counted(found: Sequence[Finding]) -> str:
    return ", ".join(f"{count} {word}" for word, count in _counts(found).items() if count)


def _remarks(found: Sequence[Finding]) -> list[str]:
    """What failed, what was skipped, and what there is to say of the rest."""
    shown = [each for each in found if each.passed is not True or each.detail]
    order = [False, None, True]
    return [f"  {each.sentence}" for each in sorted(shown, key=lambda each: order.index(each.passed))]
