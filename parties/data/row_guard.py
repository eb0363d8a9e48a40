"""Keeps a party from answering with rows that lost their meaning: most are not usable, or many rows or cells are gone.

An export that breaks still loads: a boolean written as 0 and 1 makes zero vectors, or the value that its policy
imputes; a filter in a query leaves 5,000 rows of 1,000,000. Answers from such rows are charged like others.

So the counts that were answered with last are kept in the state directory, and counts that are worse than the policy's
[data] allows hold the party until a person accepts them.

A held party refuses what it would accept otherwise, with the code ROWS_NOT_ACCEPTED. That tells coordinator and learner
one bit about its rows, whether they are beyond a limit of the policy; silence told the same of a party that is known to
run. No epsilon bounds it (docs/threat-model-details.md, P4).
"""

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from dpcore.errors import ConfigurationError
from dpcore.records.schema import Schema
from dpcore.records.shared_schema import SharedSchema
from parties.data.load_report import LoadReport
from parties.policy import DataLimits
from radobase.failure import in_words
from radobase.logs import Log
from radobase.metrics import Reason
from radobase.printing import amount
from radobase.reading import FileKind, read_json, state_of, with_remedy
from radobase.writing import write_durably

FILE = "rows.json"
ADVICE = (
    "every query is refused until the table is corrected and loaded (`rado party reload`), or a person accepts these "
    "rows (`rado party accept-rows`)"
)
_REMEDY = "remove it: the rows that the node loads then are what later ones are compared with"
_KIND = FileKind(with_remedy(_REMEDY), limit_bytes=16 << 20, decides=True)


@dataclass(frozen=True)
class RowCounts:
    """What a party loaded, and what its schema changed in it."""

    rows: int
    """All of the table."""
    usable: int
    """Those that are not zero vectors; under the label that makes the fewest usable, if the schema has several."""
    changed: Mapping[str, int] | None = None
    """For each feature, how many cells the schema's policies replaced, set to 0 or clipped; None if not known."""
    by_label: Mapping[str, int] | None = None
    """Usable rows under each label, by its name; None if the schema has one."""

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> "RowCounts":
        """Of a file. Raises TypeError, ValueError."""
        found = cls(**content)
        cells = {} if found.changed is None else dict(found.changed)
        labels = {} if found.by_label is None else dict(found.by_label)
        numbers = [found.usable, *cells.values(), *labels.values()]
        if type(found.rows) is not int or not all(type(each) is int and 0 <= each <= found.rows for each in numbers):
            raise ValueError("not the counts of a table")
        return found

    @classmethod
    def of(cls, report: LoadReport) -> "RowCounts":
        """The counts of a loaded table."""
        by_label = report.usable_by_label
        usable = min(by_label.values(), default=report.rows - report.zero_vectors)
        return cls(report.rows, usable, dict(report.changed), by_label or None)

    @property
    def unusable_share(self) -> Fraction:
        """Zero vectors among the rows."""
        return Fraction(self.rows - self.usable, self.rows)

    @property
    def changed_shares(self) -> dict[str, Fraction]:
        """For each feature, the share of its cells that were replaced, set to 0 or clipped; empty if not known."""
        return {name: Fraction(cells, self.rows) for name, cells in (self.changed or {}).items()}

    @property
    def worst_label(self) -> str:
        """Words for the label that makes the fewest rows usable; "" if the schema has one."""
        of = self.by_label
        return "" if not of else f" under label {min(of, key=lambda name: of[name])!r}"

    def usable_now_and(self, before: "RowCounts") -> list[tuple[str, int, int]]:
        """For each label that both have, or for the only one: words, and the usable rows now and before."""
        both = [name for name in self.by_label or () if name in (before.by_label or ())]
        if self.by_label is None or before.by_label is None or not both:
            return [("usable row", self.usable, before.usable)]
        return [(f"row usable under label {name!r}", self.by_label[name], before.by_label[name]) for name in both]

    def rises(self, before: "RowCounts") -> dict[str, Fraction]:
        """By how much these shares are larger than before, for features that both have."""
        known = before.changed_shares
        return {name: share - known[name] for name, share in self.changed_shares.items() if name in known}


@dataclass(frozen=True)
class Known:
    """What later rows are compared with."""

    counts: RowCounts
    """Those with which the party answered last, or that a person accepted, or the first that it loaded."""
    accepted: RowCounts | None = None
    """The last that a person accepted: so large a share of unusable rows is allowed."""
    accepted_by: str = ""
    accepted_at_unix_s: float = 0.0


def faults(counts: RowCounts, known: Known | None, limits: DataLimits) -> dict[Reason, str]:
    """Why a party must not answer with these rows, in words. known: None before the first load."""
    found = {}
    share, most, lost = counts.unusable_share, limits.most_unusable_rows, counts.rows - counts.usable
    accepted = None if known is None else known.accepted
    if share > most and (accepted is None or share > accepted.unusable_share):
        found[Reason.ROWS_UNUSABLE] = (
            f"{lost} of {amount(counts.rows, 'row')} "
            f"{'becomes a zero vector' if lost == 1 else 'become zero vectors'}{counts.worst_label} "
            f"({_percent(share)}), and the "
            f"policy's most_unusable_rows is {_percent(most)}"
        )
    if known is not None:
        for what, now, before in (
            *counts.usable_now_and(known.counts),
            ("row", counts.rows, known.counts.rows),
        ):
            if now < before * (1 - limits.largest_drop_in_rows):
                found[Reason.ROWS_DROPPED] = (
                    f"{amount(now, what)} {'is' if now == 1 else 'are'} left of {before}, and the policy's "
                    "largest_drop_in_rows is "
                    f"{_percent(limits.largest_drop_in_rows)}"
                )
                break
        rises = counts.rises(known.counts)
        limit = limits.largest_rise_in_changed_cells
        if beyond := sorted((name for name, rise in rises.items() if rise > limit), key=lambda name: -rises[name]):
            name, more = beyond[0], len(beyond) - 1
            further = "" if not more else f" (and of {more} more {'feature' if more == 1 else 'features'})"
            found[Reason.CELLS_CHANGED] = (
                f"the schema's policies replace or clip {_percent(counts.changed_shares[name])} of the cells of "
                f"feature {name!r}{further}, it was {_percent(known.counts.changed_shares[name])}, and the policy's "
                f"largest_rise_in_changed_cells is {_percent(limit)}"
            )
    return found


def _is_more(counts: RowCounts, known: RowCounts) -> bool:
    """Whether they say more than the known ones, and no feature lost more cells."""
    if any(rise > 0 for rise in counts.rises(known).values()):
        return False
    if any(now < before for _, now, before in counts.usable_now_and(known)):
        return False
    is_same = (counts.rows, counts.usable) == (known.rows, known.usable)
    return (counts.rows >= known.rows and counts.usable > known.usable) or (is_same and counts != known)


def _percent(share: Fraction) -> str:
    return f"{float(100 * share):.4g} %"


def load_known(directory: Path) -> Known | None:
    """What the state directory remembers; None before the first load. Raises ConfigurationError."""
    path = directory / FILE
    if not path.exists():
        return None
    content = read_json(path, _KIND)
    try:
        accepted = content["accepted"]
        return Known(
            RowCounts.from_dict(content["counts"]),
            None if accepted is None else RowCounts.from_dict(accepted),
            str(content["accepted_by"]),
            float(content["accepted_at_unix_s"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigurationError(f"{path}: is not what a node wrote ({type(error).__name__}); {_REMEDY}") from error


def save_known(directory: Path, known: Known) -> None:
    """Remember it, durably. Raises ConfigurationError if the directory cannot be written."""
    try:
        write_durably(directory / FILE, json.dumps(asdict(known), indent=1).encode())
    except OSError as error:
        raise ConfigurationError(f"{directory / FILE}: cannot be written ({in_words(error)})") from error


def accept(directory: Path, counts: RowCounts, person: str) -> None:
    """A person accepts rows. A running node notices it. Raises ConfigurationError."""
    save_known(directory, Known(counts, counts, person, time.time()))


class RowGuard:
    """Whether a node may answer with the rows that it holds. Thread-safe."""

    def __init__(self, directory: Path, counts: RowCounts, limits: DataLimits, log: Log) -> None:
        """counts: of the rows that the node holds. Raises ConfigurationError if the file cannot be used."""
        self._directory, self._log, self._lock = directory, log, threading.RLock()
        self._counts, self._limits = counts, limits
        self._known, self._read = load_known(directory), state_of(directory / FILE)
        self._said: dict[Reason, str] = {}
        self._settle()

    @property
    def counts(self) -> RowCounts:
        """Of the rows that the node holds."""
        return self._counts

    def counts_now(self) -> RowCounts:
        """As `counts`, to be passed on."""
        return self._counts

    def hold(self, counts: RowCounts) -> None:
        """The node takes other rows: call it before they are answered with."""
        with self._lock:
            self._counts = counts
            self._settle()

    def follow(self, limits: DataLimits) -> None:
        """Apply another policy."""
        with self._lock:
            self._limits = limits
            self._settle()

    def faults(self) -> dict[Reason, str]:
        """Why the node must not answer now; empty if it may. Raises ConfigurationError if the file is damaged."""
        with self._lock:
            if (present := state_of(self._directory / FILE)) != self._read:
                self._known, self._read = load_known(self._directory), present
                self._settle()
            # Made again whenever counts, limits or what is known change: this is asked before every step of a query.
            return dict(self._said)

    def note_charged(self) -> None:
        """An answer was charged: later rows are compared with these."""
        with self._lock:
            known = self._known
            if known is None or known.counts == self._counts or self.faults():
                return
            self._save(Known(self._counts, known.accepted, known.accepted_by, known.accepted_at_unix_s))

    def _settle(self) -> None:
        """Say what holds the node, once. The first rows, and more rows than before, are what later ones must match."""
        found, known = faults(self._counts, self._known, self._limits), self._known
        if found != self._said:
            for reason, sentence in found.items():
                self._log.error("rows not accepted", code=reason.value, reason=f"{sentence}; {ADVICE}")
            if not found:
                by = "" if known is None or known.accepted != self._counts else known.accepted_by
                self._log.info("rows accepted", rows=self._counts.rows, usable=self._counts.usable, by=by)
            self._said = found
        if found:
            return
        if known is None:
            self._save(Known(self._counts))
        elif _is_more(self._counts, known.counts):
            self._save(Known(self._counts, known.accepted, known.accepted_by, known.accepted_at_unix_s))

    def _save(self, known: Known) -> None:
        try:
            save_known(self._directory, known)
        except ConfigurationError as error:
            # A disk that is full now: the counts in memory hold until it can be written.
            self._log.warning("row counts not kept", reason=str(error))
        self._known, self._read = known, state_of(self._directory / FILE)


# The policies of a schema that refuse a record, and with it every query.


_POLICIES = ("missing", "out_of_bounds", "unreadable", "unknown")

REFUSING_ADVICE = (
    "A record with such a cell keeps the party from starting, and others see that it is absent: the privacy figures "
    "hold for replacements by records that the schema takes. Agree on clip, impute, zero or zero-vector instead."
)


def refusing_fields(schema: Schema | SharedSchema) -> tuple[str, ...]:
    """The fields of a schema whose policy is "refuse", such as "features.age.missing"."""
    shared = SharedSchema.of(schema)
    labels: list[tuple[str, Any]] = [(f"labels.{name}", each.label) for name, each in shared.by_label.items()]
    labels = labels if len(labels) > 1 else [("label", shared.first.label)]
    labels += [] if shared.first.weight is None else [("weight", shared.first.weight)]
    parts = [*labels, *((f"features.{feature.name}", feature) for feature in shared.first.features)]
    return tuple(
        f"{path}.{policy}" for path, part in parts for policy in _POLICIES if getattr(part, policy, None) == "refuse"
    )


def advice(schema: Schema | SharedSchema) -> str:
    """A warning that names the refusing policies; empty if there is none."""
    fields = refusing_fields(schema)
    if not fields:
        return ""
    shown = ", ".join(fields[:4]) + (f" and {len(fields) - 4} more" if len(fields) > 4 else "")
    return f'{shown} = "refuse". {REFUSING_ADVICE}'
