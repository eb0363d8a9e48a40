"""What loading a table found, for the party only: numbers of rows, and of the cells that policies changed."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dpcore.records.coding import SIGNS, Labels
from dpcore.records.elsewhere import FeaturesElsewhere
from dpcore.records.encoding import (
    Change,
    StoredLabels,
    StoredRows,
    Tally,
    changed_cells,
    changes,
    main_cause,
    summed,
)
from dpcore.records.features import Classes, EventTime, Target, measured
from dpcore.records.features.labels import MOST_CLASSES
from dpcore.records.shared_schema import SharedSchema
from parties.data.part_sums import BlockDigest
from radobase.printing import amount
from radobase.tables.recoding import Occurrences, Recode, recoded_words
from radobase.tables.tables import IdentifiedRows

_DIGEST = b"rado.v1/data-blocks\0"
_RECODED = b"recoded\0"


@dataclass(frozen=True)
class LoadReport:
    """Result of loading: numbers of rows and, for each feature, the numbers of cells that a policy changed."""

    file: str
    rows: int
    zero_vectors: int
    """Rows that became zero vectors."""
    positive: int
    negative: int
    """Usable rows of each class; 0 if there are several."""
    tallies: tuple[Tally, ...]
    """One per feature, in the schema's order, then the label's."""
    digest: bytes = field(repr=False)
    """SHA-256 over all rows as encoded, in their order, over their ids, over their epochs if there are any, and over
    the digest of the recode file if there is one. It confirms a guess of all rows: `PartySecret.data_digest` makes of
    it what people may read."""
    changes: tuple[Change, ...] = ()
    """The same by policy, what lost most first."""
    changed: Mapping[str, int] = field(default_factory=dict)
    """By feature, the cells whose value a policy replaced or clipped."""
    class_rows: tuple[tuple[str, int], ...] = ()
    """Name and usable rows of each class if there are several, or of each outcome of times to an event."""
    epochs: Mapping[str, int] = field(default_factory=dict)
    """Rows by epoch, "" for none."""
    measured: tuple[float, float] | None = None
    """The least and the greatest label of usable rows in its units, if it is a number or a count."""
    recoded: Mapping[str, int] = field(default_factory=dict)
    """By column of the schema, the cells that the recode file changed."""
    unused_recodes: tuple[str, ...] = ()
    """Sentences about spellings of the recode file that no cell has."""
    label: str = ""
    """The name of the label that its classes, labels and usable rows are of; empty if the schema has one."""
    others: tuple["LoadReport", ...] = ()
    """Of the same rows under each further label."""

    @property
    def all_changes(self) -> tuple[Change, ...]:
        """Those of every label."""
        return tuple(dict.fromkeys(change for each in (self, *self.others) for change in each.changes))

    @property
    def usable_by_label(self) -> dict[str, int]:
        """Usable rows under each label, by its name; empty if the schema has one."""
        return {each.label: each.rows - each.zero_vectors for each in (self, *self.others) if each.label}

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences that the data officer should know, about problems that do not stop the party."""
        many = (change.clause for change in self._further if change.is_many)
        own = (*map(self._named, self._of_rows()), *self.unused_recodes, *many)
        # What was changed in features is the same under each label.
        return tuple(dict.fromkeys((*own, *(warning for each in self.others for warning in each.warnings))))

    def _named(self, sentence: str) -> str:
        return f"label {self.label!r}: {sentence}" if self.label else sentence

    @property
    def recoded_sentence(self) -> str:
        """What the recode file changed, such as "recoded: 1203 cells of sex"; empty if there is no such cell."""
        return f"recoded: {recoded_words(self.recoded)}" if self.recoded else ""

    @property
    def _further(self) -> Sequence[Change]:
        """The changes but that which left most rows out: `_of_rows` has its sentence."""
        return self.changes[1:] if main_cause(self.changes) else self.changes

    def _of_rows(self) -> Iterator[str]:
        usable, cause = self.rows - self.zero_vectors, main_cause(self.changes)
        if not usable:
            yield f"no row is usable, every row becomes a zero vector and contributes nothing: {cause}"
        elif self.class_rows:
            yield from self._of_classes(usable)
        elif self.measured is not None:
            lowest, highest = self.measured
            if lowest == highest:
                yield f"the label of all {usable} usable rows is {lowest:g}: this party cannot learn alone"
        elif not (self.positive and self.negative):
            side = "positive" if self.positive else "negative"
            whole = f"all {usable} usable rows are" if usable > 1 else "the only usable row is"
            yield f"{whole} {side}: this party can take part but cannot learn alone"
        if self.zero_vectors and usable:
            share = 100 * self.zero_vectors / self.rows
            become = "becomes a zero vector" if self.zero_vectors == 1 else "become zero vectors"
            yield f"{self.zero_vectors} of {self.rows} rows ({share:.1f} %) {become}: {cause}"
        if without := self.epochs.get("", 0):
            yield f"{without} of {self.rows} rows are in no epoch: only queries about all rows are answered from them"

    def _of_classes(self, usable: int) -> Iterator[str]:
        if len(self.class_rows) > MOST_CLASSES:  # a list of codes to be counted, most of which occur nowhere
            return
        absent = [repr(name) for name, rows in self.class_rows if not rows]
        if len(absent) == len(self.class_rows) - 1:
            (only,) = (name for name, rows in self.class_rows if rows)
            whole = f"all {usable} usable rows are" if usable > 1 else "the only usable row is"
            yield f"{whole} of class {only!r}: this party can take part but cannot learn alone"
        elif absent:
            yield f"no usable row is of class {', '.join(absent)}: what is learned of it comes from other parties"

    def sentences(self) -> list[str]:
        """The report for people, one sentence per line: the rows, then what each policy changed, most lost first."""
        sizes = f"{self.positive} positive, {self.negative} negative"
        if self.class_rows:
            present = sum(rows > 0 for _, rows in self.class_rows)
            sizes = f"{present} of {len(self.class_rows)} listed texts in {self.rows - self.zero_vectors} usable rows"
            if len(self.class_rows) <= MOST_CLASSES:
                sizes = ", ".join(f"{rows} {name!r}" for name, rows in self.class_rows)
        elif self.measured is not None:
            sizes = "labels from {:g} to {:g}".format(*self.measured)
        lines = [f"{self.file}: {amount(self.rows, 'row')}, {self._named(sizes)}"]
        lines += [self.recoded_sentence] if self.recoded else []
        lines += [f"warning: {warning}" for warning in (*map(self._named, self._of_rows()), *self.unused_recodes)]
        lines += [f"warning: {each.clause}" if each.is_many else each.sentence for each in self._further]
        return list(dict.fromkeys((*lines, *(line for each in self.others for line in each.sentences()))))


class ReportBuilder:
    """Builds a report block by block."""

    def __init__(self, file: str, schema: SharedSchema, id_column: str | None, recode: Recode | None) -> None:
        self._file, self._id_column = file, id_column or ""
        self._recode, self._occurrences = recode, Occurrences()
        self._without_id = self._rows = 0
        self._tallies = tuple(Tally(feature.name) for feature in schema.first.features)
        self._schema = schema
        names = schema.labels if len(schema.labels) > 1 else ("",)
        self._of_labels = [_CountedLabel(name, each.label) for name, each in zip(names, schema.schemas, strict=True)]
        # One for each array, so that the digest does not depend on the blocks in which a source gives its rows.
        self._of_features, self._of_ids = BlockDigest(), hashlib.sha256()
        weight = schema.first.weight
        self._of_weights, self._weight_tallies = hashlib.sha256(), [] if weight is None else [Tally(weight.column)]
        self._of_epochs = hashlib.sha256()
        self._epochs: Counter[str] = Counter()

    def add(self, block: IdentifiedRows) -> None:
        """Count the next block of the table."""
        rows, ids, epochs = block.stored, block.ids, block.epochs
        self._occurrences.update(block.recoded)
        self._rows += len(rows.usable)
        *of_features, of_label = rows.tallies
        tallies = (of_label, *(each.tally for each in rows.others))
        for own, given, tally in zip(self._of_labels, rows.of_labels, tallies, strict=True):
            own.add(given, tally)
        self._tallies = summed([self._tallies, of_features])
        if isinstance(rows.features, FeaturesElsewhere):
            self._of_features.blocks = rows.features.table.blocks
        else:
            self._of_features.add(rows.features)
        if rows.weights is not None and rows.weight_tally is not None:
            self._of_weights.update(np.ascontiguousarray(rows.weights, dtype="<u2").data)
            self._weight_tallies = [self._weight_tallies[0] + rows.weight_tally]
        self._without_id += ids.count("")
        self._epochs.update(epochs)
        for texts, digest in ((ids, self._of_ids), (epochs, self._of_epochs)):
            for text in texts:
                encoded = text.encode()
                digest.update(len(encoded).to_bytes(8, "big") + encoded)

    def report(self) -> LoadReport:
        """The report of all blocks."""
        first, *others = self._of_labels
        recoded: dict[str, int] = {}
        unused: tuple[str, ...] = ()
        if self._recode is not None:
            recoded, unused = self._recode.counts(self._occurrences), tuple(self._recode.unused(self._occurrences))
        digest, schema = self._digest(), self._schema.first
        changed = changed_cells(schema, [*self._tallies, *self._weight_tallies])
        said: dict[str, Any] = {"changed": changed, "epochs": dict(self._epochs)}
        said |= {"recoded": recoded, "unused_recodes": unused}
        return replace(
            self._report(first, digest),
            others=tuple(self._report(each, digest) for each in others),
            **said,
        )

    def _report(self, label: "_CountedLabel", digest: bytes) -> LoadReport:
        schema = replace(self._schema.first, label=label.label)
        tallies = (*self._tallies, label.tally, *self._weight_tallies)
        counts: dict[str, Any] = {"id_column": self._id_column, "without_id": self._without_id, "label": label.name}
        found = changes(schema, tallies, self._rows, **counts)
        sizes = (self._rows, self._rows - label.usable, label.positive, label.negative)
        said: dict[str, Any] = {"changes": found, "class_rows": label.by_class, "label": label.name}
        return LoadReport(self._file, *sizes, tallies, digest, **said, measured=label.values.of(label.label))

    def _digest(self) -> bytes:
        first, *others = self._of_labels
        hashes: list[Any] = [self._of_features, first.of_labels, first.of_usable, self._of_ids]
        hashes += [self._of_epochs] if self._epochs else []
        # The schema's digest says how many labels there are and if there is a weight: no number of hashes has two
        # meanings.
        hashes += [each for label in others for each in (label.of_labels, label.of_usable)]
        hashes += [self._of_weights] if self._weight_tallies else []
        parts = (self._schema.digest, *(each.digest() for each in hashes))
        if self._recode is not None:
            # No number of digests has the same length as one with this.
            parts = (*parts, _RECODED, self._recode.digest)
        return hashlib.sha256(_DIGEST + b"".join(parts)).digest()


class _CountedLabel:
    """The rows of a table under one label, block by block."""

    def __init__(self, name: str, label: Target) -> None:
        self.name, self.label, self.tally = name, label, Tally(label.column)
        self.usable = self.positive = 0
        self.values = _Extremes()
        self.of_labels, self.of_usable = hashlib.sha256(), hashlib.sha256()
        self._of_classes = np.zeros(label.classes, dtype=np.int64)
        self._outcomes: Counter[str] = Counter()

    def add(self, rows: StoredRows | StoredLabels, tally: Tally) -> None:
        labels, usable, coding = rows.labels, rows.usable, self.label.coding
        self.usable += int(np.count_nonzero(usable))
        self.tally += tally
        if coding.classes:
            self._of_classes += np.bincount(labels[usable], minlength=coding.classes)
        elif isinstance(self.label, EventTime):
            self._outcomes.update(dict(self.label.outcomes(labels[usable])))
        elif coding.is_measured:
            self.values.add(coding.values(labels)[usable])
        else:
            self.positive += int(np.count_nonzero(usable & (labels == 1)))
        self.of_labels.update(np.ascontiguousarray(labels, dtype=coding.dtype.newbyteorder("<")).data)
        self.of_usable.update(np.ascontiguousarray(usable).data)

    @property
    def negative(self) -> int:
        return self.usable - self.positive if self.label.coding == SIGNS else 0

    @property
    def by_class(self) -> tuple[tuple[str, int], ...]:
        """As LoadReport.class_rows."""
        if isinstance(self.label, Classes):
            return tuple(zip(self.label.values, self._of_classes.tolist(), strict=True))
        return tuple(self._outcomes.items())


class _Extremes:
    """The least and the greatest of stored labels that are numbers or counts."""

    def __init__(self) -> None:
        self._lowest: int | None = None
        self._highest: int | None = None

    def add(self, labels: Labels) -> None:
        if len(labels):
            lowest, highest = int(labels.min()), int(labels.max())
            self._lowest = lowest if self._lowest is None else min(self._lowest, lowest)
            self._highest = highest if self._highest is None else max(self._highest, highest)

    def of(self, label: Target) -> tuple[float, float] | None:
        """In the label's units; None without any."""
        if self._lowest is None or self._highest is None:
            return None
        known = measured(label, "a range of labels")
        return known.read(self._lowest), known.read(self._highest)
