"""A party plays the adversary on its own rows, on its own machine. Nothing is charged, sent or kept.

Figures of unprotected designs depend on the rows and are for the party only.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpcore.attacks.options import RehearsalFields
from dpcore.attacks.outcome import MEASURES, Outcome
from dpcore.attacks.rehearsal import ATTACKS, part_of, rehearsed
from dpcore.declared import number_text
from dpcore.randomness.sources import RandomSource
from dpcore.records.features import two_classes
from dpcore.records.records import Records
from dpcore.records.schema import Schema
from radobase.presentation.svg import Drawing, Scale, write_picture
from radobase.presentation.words import counted

HEADER = ("attack", "release", "rados", "rows", "success", "without", "allowed")


@dataclass(frozen=True)
class Rehearsed:
    """What every attack achieved on every release."""

    fields: RehearsalFields
    outcomes: tuple[Outcome, ...]
    rows: int
    """Usable rows that were played with."""
    of_rows: int
    """Usable rows of the party."""

    @classmethod
    def of(
        cls,
        fields: RehearsalFields,
        records: Records,
        schema: Schema,
        random: RandomSource,
        *,
        rows: int | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> "Rehearsed":
        """Play. rows: of a random part of the rows; default: all of them. Raises as `rehearsed` does."""
        two_classes(schema.label, "a rehearsed attack")
        usable = int(records.usable.sum())
        if rows is not None and rows < usable:
            records = part_of(records, rows, random)
        outcomes = tuple(rehearsed(fields, records, schema, random, progress))
        return cls(fields, outcomes, min(usable, rows or usable), usable)

    @property
    def alarms(self) -> list[str]:
        """Attacks that achieve more than epsilon allows: the noise or its accounting is wrong."""
        return [
            f"alarm: {each.attack} on {_release_words(each)} achieves at least {each.low:.2f} and at most "
            f"{each.bound:.2f} is allowed: the noise is smaller than stated; approve nothing and report this"
            for each in self.outcomes
            if each.exceeds
        ]

    def to_dict(self) -> dict[str, Any]:
        """In JSON's types."""
        return {
            "rows": self.rows,
            "of_rows": self.of_rows,
            "epsilon": str(self.fields.epsilon),
            "delta": str(self.fields.delta),
            "outcomes": [each.to_dict() for each in self.outcomes],
            "alarms": self.alarms,
        }

    @property
    def by_attack(self) -> dict[str, list[Outcome]]:
        """The outcomes of each attack, in the order played."""
        found: dict[str, list[Outcome]] = {}
        for each in self.outcomes:
            found.setdefault(each.attack, []).append(each)
        return found

    def table(self) -> list[tuple[str, ...]]:
        """The cells of the table, below HEADER, attack by attack."""
        return [_cells(each) for outcomes in self.by_attack.values() for each in outcomes]

    def sentences(self) -> list[str]:
        """What the table means, the notes of its attacks, and alarms."""
        part = "" if self.rows == self.of_rows else f", a random part of {self.of_rows}"
        promise = f"epsilon {float(self.fields.epsilon):g} at delta {number_text(self.fields.delta)}"
        lines = [
            f"played on {counted(self.rows, 'usable row')}{part}; nothing was sent or charged",
            "success: with its 95 % interval; without: of the same guesses without the release",
            f"allowed: at most, by {promise}, against who has the rows and the noise of all other parties",
        ]
        for name, outcomes in self.by_attack.items():
            lines.append(f"{name}: {' and '.join(_measures(outcomes))}; the adversary {ATTACKS[name].adversary}")
            of: dict[str, list[str]] = {}
            for each in outcomes:
                of.setdefault(each.note, []).append(each.release)
            for note, releases in of.items():
                lines.append(f"  {note}" + (f" ({'; '.join(dict.fromkeys(releases))})" if len(of) > 1 else ""))
        return [*lines, *self.alarms]

    def draw(self, file: Path) -> None:
        """Write the picture, an SVG: a panel for each attack. Raises ConfigurationError."""
        panels = [_panel(name, outcomes) for name, outcomes in self.by_attack.items()]
        title = (
            f"Attacks on {counted(self.rows, 'row')}, epsilon {float(self.fields.epsilon):g}. Bar: success. Whisker: "
            "95 % interval. Upright line: the most that epsilon allows; none: no bound."
        )
        write_picture(title, panels, file, across=2)


def _release_words(outcome: Outcome) -> str:
    return outcome.release if outcome.rados is None else f"{outcome.release}, {counted(outcome.rados, 'rado')}"


def _measures(outcomes: list[Outcome]) -> list[str]:
    measured = dict.fromkeys(MEASURES[each.measure] for each in outcomes if each.success is not None)
    return list(measured) or ["not played"]


def _cells(outcome: Outcome) -> tuple[str, ...]:
    rados = "" if outcome.rados is None else str(outcome.rados)
    named = (outcome.attack, outcome.release, rados, str(outcome.rows))
    if outcome.success is None or outcome.low is None or outcome.high is None or outcome.baseline is None:
        return (*named, "not played", "", "")
    success = f"{outcome.success:.2f} [{outcome.low:.2f}, {outcome.high:.2f}]"
    return (*named, success, f"{outcome.baseline:.2f}", "no bound" if outcome.bound is None else f"{outcome.bound:.2f}")


_ROW, _NAME, _WIDTH, _FIGURE, _TOP = 20, 290, 600, 104, 26


def _panel(name: str, outcomes: list[Outcome]) -> Drawing:
    """The outcomes of one attack, a bar each, but for those that were not played."""
    heading = f"{name}: {' and '.join(_measures(outcomes))}"
    outcomes = [each for each in outcomes if each.success is not None]
    drawing = Drawing("", name, "", _WIDTH, _TOP + _ROW * len(outcomes) + 22)
    drawing.text(8, 15, heading, class_="b")
    scale = Scale(0.0, 1.0)

    def place(value: float | None) -> float:
        return round(_NAME + scale.share(value or 0.0) * (_WIDTH - _NAME - _FIGURE), 1)

    bottom = _TOP + _ROW * len(outcomes)
    for tick in (0.0, 0.5, 1.0):
        drawing.stroke(f"M{place(tick):g} {_TOP} V{bottom}", "axis" if tick == 0 else "grid")
        drawing.text(place(tick), bottom + 16, f"{tick:g}", anchor="middle", class_="soft")
    for number, each in enumerate(outcomes):
        y = _TOP + _ROW * number
        drawing.text(_NAME - 8, y + 15, f"{_release_words(each)}, {counted(each.rows, 'row')}", anchor="end")
        drawing.add("rect", x=_NAME, y=y + 4, width=place(each.success) - _NAME, height=13, class_="bar")
        low, high = place(each.low), place(each.high)
        drawing.stroke(f"M{low:g} {y + 10.5} H{high:g} M{low:g} {y + 7.5} v6 M{high:g} {y + 7.5} v6", "whisker")
        if each.bound is not None:
            drawing.stroke(f"M{place(each.bound):g} {y + 1} v18", "limit")
        allowed = "no bound" if each.bound is None else f"of {each.bound:.2f}"
        drawing.text(_WIDTH - 2, y + 15, f"{each.success:.2f} {allowed}", anchor="end")
    return drawing
