"""The demo's data: a table, a schema, a held-out fifth, and an unequal split of the rest over parties.

The split is drawn from a fixed seed, so that all runs hold out the same rows. Privacy does not depend on it: the demo's
keys, masks and noise come from the operating system's randomness.
"""

import csv
import gzip
import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from dpcore.errors import ConfigurationError
from dpcore.records.features import BooleanFeature, CategoryFeature, Label, RealFeature, ThresholdFeature
from dpcore.records.schema import Schema
from radobase.tables.csv_table import CsvTable
from radobase.tables.tables import encoded_blocks, open_table
from radofed.demo.options import Split

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

SPLIT_SEED = 2015
HELD_OUT = 0.2
# Share of the rows of its own kinds that a party holds; the other parties share the rest.
OWN_SHARE = 0.9
# Most rows of the first party, as a multiple of the last one's.
MOST_UNEQUAL = 4
DARK_PIXEL, DARK = "pixel_3_4", 8.0
_COMPASS = ("north", "south", "east", "west")


class Rows(Protocol):
    """A table that can be written in parts."""

    @property
    def extension(self) -> str:
        """The file name extension, with the dot."""
        ...

    def write(self, rows: Integers, path: Path) -> None:
        """Write these rows, in this order, to a new file."""
        ...


@dataclass(frozen=True)
class DemoData:
    """The files of one demo."""

    schema: Schema
    parties: dict[str, Path]
    """By party name, in order."""
    test: Path
    """The held-out rows."""


def party_names(count: int) -> tuple[str, ...]:
    """The names of the demo's parties."""
    return _COMPASS if count == len(_COMPASS) else tuple(f"party-{number}" for number in range(1, count + 1))


def digits(directory: Path, parties: int) -> DemoData:
    """scikit-learn's handwritten digits, "is it even?": 1,797 rows of 64 pixels from 0 to 16.

    Each party holds mostly its own digits, as offices that sort mail would. One informative pixel near the middle is
    thresholded and replaces its column: it is the sensitive boolean.
    """
    from sklearn.datasets import load_digits  # noqa: PLC0415  (slow to import, and --data does not need it)

    loaded = load_digits()
    kinds = loaded.target.astype(np.int64)
    names = [f"pixel_{row}_{column}" for row in range(8) for column in range(8)]
    features = tuple(
        ThresholdFeature(name=f"{name}_dark", column=name, threshold=DARK)
        if name == DARK_PIXEL
        else RealFeature(name=name, column=name, lower=0.0, upper=16.0)
        for name in names
    )
    schema = Schema(
        name="digits", label=Label(column="parity", positive=("even",), negative=("odd",)), features=features
    )
    parity = np.where(kinds % 2 == 0, "even", "odd")
    cells = [[*(f"{value:g}" for value in row), label] for row, label in zip(loaded.data, parity.tolist(), strict=True)]
    table = CsvRows([*names, "parity"], cells)
    return divide(directory, table, schema, kinds, specialists(10, parties, OWN_SHARE))


def own_file(directory: Path, data: Path, schema: Schema, parties: int, split: Split) -> DemoData:
    """The user's own file, read through a schema and split over unequal parties.

    split: "iid", or "label-skew", where every other party holds three times its share of one class. Raises DataError
    if the file does not fit the schema, ConfigurationError if it has too few rows.
    """
    labels = np.concatenate([block.labels for block in encoded_blocks(data, schema, label=True)])
    kinds = (labels > 0).astype(np.int64)
    table = read_rows(data)
    share = _weights(parties)
    affinity = np.vstack([share, share])
    if split == "label-skew":
        favoured = np.arange(parties) % 2
        affinity = affinity * np.where(favoured == np.arange(2)[:, None], 3.0, 1.0)
    return divide(directory, table, schema, kinds, affinity / affinity.sum(axis=1, keepdims=True))


def read_xy(files: Sequence[Path], schema: Schema) -> tuple[Floats, Integers]:
    """Usable rows of labelled files as the schema encodes them: (m, d) float64, and labels (m,) in {-1, +1}."""
    blocks = [block for file in files for block in encoded_blocks(file, schema, label=True)]
    x = np.concatenate([block.x[block.usable] for block in blocks])
    y = np.concatenate([block.labels[block.usable] for block in blocks if block.labels is not None])
    return x, y.astype(np.int64)


def _weights(parties: int) -> Floats:
    """Linearly decreasing shares (parties,): the first is min(parties, 4) times the last."""
    weights: Floats = np.linspace(min(parties, MOST_UNEQUAL), 1, parties)
    weights /= weights.sum()
    return weights


def specialists(kinds: int, parties: int, own_share: float) -> Floats:
    """Each party's share of the rows of each kind, (kinds, parties): `own_share` of the kinds that it owns.

    The kinds are divided among the parties in order, in pieces proportional to their weights; a party owns its piece.
    """
    lengths = kinds * _weights(parties)
    ends = np.cumsum(lengths)
    kind = np.arange(kinds)[:, None]
    owned = (np.minimum(ends, kind + 1) - np.maximum(ends - lengths, kind)).clip(0, 1)
    shares: Floats = own_share * owned + (1 - own_share) * (1 - owned) / (parties - 1)
    return shares


def divide(directory: Path, table: Rows, schema: Schema, kinds: Integers, affinity: Floats) -> DemoData:
    """Hold out a fifth of every kind, give the rest to parties by `affinity` (kinds, parties), and write all files.

    Raises ConfigurationError if there are too few rows.
    """
    generator = np.random.default_rng(SPLIT_SEED)
    parties = affinity.shape[1]
    held_out = np.zeros(len(kinds), dtype=np.bool_)
    for kind in range(len(affinity)):
        members = generator.permutation(np.flatnonzero(kinds == kind))
        held_out[members[: round(HELD_OUT * len(members))]] = True
    training = generator.permutation(np.flatnonzero(~held_out))
    if len(training) < 10 * parties or not held_out.any():
        raise ConfigurationError(f"{len(kinds)} rows are too few for {parties} parties and a held-out fifth")
    draws = generator.random(len(training))
    party_of = (draws[:, None] > np.cumsum(affinity, axis=1)[kinds[training]]).sum(axis=1).clip(0, parties - 1)
    # Every party gets at least one row.
    party_of[:parties] = np.arange(parties)
    directory.mkdir(parents=True)
    files = {}
    for number, name in enumerate(party_names(parties)):
        files[name] = directory / f"{name}{table.extension}"
        table.write(training[party_of == number], files[name])
    test = directory / f"held-out{table.extension}"
    table.write(np.flatnonzero(held_out), test)
    return DemoData(schema, files, test)


@dataclass(frozen=True)
class CsvRows:
    """A CSV table in memory; its cells are strings."""

    header: Sequence[str]
    cells: Sequence[Sequence[str]]
    extension: str = ".csv"

    def write(self, rows: Integers | None, path: Path) -> None:
        """See Rows. rows: None writes all."""
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(self.header)
            writer.writerows(self.cells if rows is None else (self.cells[row] for row in rows))


@dataclass(frozen=True)
class ParquetRows:
    """A Parquet table in memory."""

    table: Any
    extension: str = ".parquet"

    def write(self, rows: Integers, path: Path) -> None:
        """See Rows."""
        import pyarrow.parquet as pq  # noqa: PLC0415  (only this kind of file needs it)

        pq.write_table(self.table.take(rows), path)


def read_rows(path: Path) -> Rows:
    """Read a whole table in any format that parties read. It must have been read through a schema before."""
    if path.name.lower().endswith((".parquet", ".pq")):
        import pyarrow.parquet as pq  # noqa: PLC0415  (as above)

        return ParquetRows(pq.read_table(path))
    table = open_table(path)
    assert isinstance(table, CsvTable), "a party reads no other kind of file"
    content = gzip.decompress(path.read_bytes()) if path.name.lower().endswith(".gz") else path.read_bytes()
    lines = io.StringIO(content.decode("utf-8-sig"), newline="")
    header, *cells = [row for row in csv.reader(lines, delimiter=table.delimiter) if row]
    return CsvRows(header, cells)


# Synthetic patients: a table that is large enough to protect whole records.
#
# No row describes a person. A patient's age, habits and measurements are drawn first. The patient then comes back
# within 30 days with probability 1 / (1 + exp(-s)). The score s is the sum of
#
# - 0.05 for a year of age beyond 60, 0.05 for a unit of body-mass index beyond 27;
# - 0.012 for a mmHg of systolic pressure beyond 128, -0.3 for a g/dl of haemoglobin beyond 13.6;
# - 0.4 for each earlier stay but the first, 0.7 for smoking, 0.9 for diabetes;
# - 0.8 for an emergency, -1.1 if a follow-up visit is booked;
# - the number of DIAGNOSES for the diagnosis, and BASE.
#
# The compared models are linear too: the errors of pooled logistic regression are mostly chance.
#
# The seed is fixed, so every run has the same patients. Privacy does not depend on it: the demo's keys, masks and
# noise come from the operating system's randomness.

ROWS = 20_000
SEED = 2015
PATIENTS_OWN_SHARE = 0.99
"""The share of a diagnosis that its own hospital treats: its rows say little about other hospitals' patients."""

BASE = -0.9
DIAGNOSES = {
    "heart failure": 1.5,
    "hip fracture": -0.5,
    "pneumonia": 1.0,
    "cataract": -1.5,
    "stroke": 0.5,
    "asthma": -1.0,
    "kidney failure": 1.8,
    "gallstones": -1.2,
}

_REALS = {
    "age": (18.0, 100.0),
    "body_mass_index": (15.0, 50.0),
    "systolic_mmhg": (80.0, 220.0),
    "haemoglobin_g_dl": (6.0, 20.0),
    "earlier_stays": (0.0, 6.0),
}
_BOOLEANS = ("smoker", "diabetic", "emergency", "follow_up_booked")


def schema() -> Schema:
    """The hospitals' schema: 18 coordinates, and the label, whether a patient comes back within 30 days."""
    reals = (RealFeature(name=name, lower=lower, upper=upper) for name, (lower, upper) in _REALS.items())
    booleans = (BooleanFeature(name=name, true=("yes",), false=("no",)) for name in _BOOLEANS)
    diagnosis = CategoryFeature(name="diagnosis", values=tuple(DIAGNOSES))
    label = Label(column="back_within_30_days", positive=("yes",), negative=("no",))
    return Schema(name="patients", label=label, features=(*reals, *booleans, diagnosis))


def patients(directory: Path, parties: int) -> DemoData:
    """20,000 synthetic patients of `parties` hospitals of unequal size; a fifth of each diagnosis is held out."""
    rows, diagnosis = _drawn()
    return divide(directory, rows, schema(), diagnosis, specialists(len(DIAGNOSES), parties, PATIENTS_OWN_SHARE))


def table() -> CsvRows:
    """All 20,000 synthetic patients."""
    return _drawn()[0]


def _drawn() -> tuple[CsvRows, Integers]:
    """The table, and each patient's diagnosis (ROWS,)."""
    rng = np.random.default_rng(SEED)
    diagnosis = rng.integers(0, len(DIAGNOSES), ROWS)
    reals, booleans = _measured(rng)
    scores = _scores(reals, booleans, diagnosis)
    back = rng.random(ROWS) < 1.0 / (1.0 + np.exp(-scores))
    return _table(reals, booleans, diagnosis, back), diagnosis


def _measured(rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Real features (ROWS, 5) in the file's units, and booleans (ROWS, 4) of 0 and 1, in the schema's order."""
    age = rng.normal(60, 16, ROWS).clip(*_REALS["age"]).round()
    mass = rng.normal(27, 4.5, ROWS).clip(*_REALS["body_mass_index"]).round(1)
    pressure = rng.normal(128 + 0.4 * (age - 60) + 0.8 * (mass - 27), 16).clip(*_REALS["systolic_mmhg"]).round()
    haemoglobin = rng.normal(13.6 - 0.03 * (age - 60), 1.6).clip(*_REALS["haemoglobin_g_dl"]).round(1)
    stays = rng.poisson(0.5 + 0.02 * (age - 40).clip(0)).clip(*_REALS["earlier_stays"])
    diabetic = 1.0 / (1.0 + np.exp(2.2 - 0.03 * (age - 60) - 0.12 * (mass - 27)))
    chances = np.column_stack([np.full(ROWS, 0.25), diabetic, np.full(ROWS, 0.45), np.full(ROWS, 0.5)])
    booleans = (rng.random(chances.shape) < chances).astype(np.float64)
    return np.column_stack([age, mass, pressure, haemoglobin, stays]).astype(np.float64), booleans


def _scores(reals: Floats, booleans: Floats, diagnosis: Integers) -> Floats:
    """The score s (ROWS,) of the module docstring."""
    centred = reals - [60.0, 27.0, 128.0, 13.6, 1.0]
    measured = centred @ [0.05, 0.05, 0.012, -0.3, 0.4] + booleans @ [0.7, 0.9, 0.8, -1.1]
    scores: Floats = measured + np.array(list(DIAGNOSES.values()))[diagnosis] + BASE
    return scores


def _table(reals: Floats, booleans: Floats, diagnosis: Integers, back: NDArray[np.bool_]) -> CsvRows:
    columns = [
        *([f"{value:g}" for value in column] for column in reals.T),
        *(np.where(column > 0, "yes", "no").tolist() for column in booleans.T),
        np.array(list(DIAGNOSES))[diagnosis].tolist(),
        np.where(back, "yes", "no").tolist(),
    ]
    header = [*_REALS, *_BOOLEANS, "diagnosis", "back_within_30_days"]
    return CsvRows(header, list(zip(*columns, strict=True)))


# Baselines for the federated models: logistic regression on the rows themselves, pooled and by party.

MOST_ITERATIONS = 5000


@dataclass(frozen=True)
class Baselines:
    """Test errors as fractions. best, median: over parties that train on their own rows alone."""

    logistic_pooled: float
    best_single_party: float
    median_single_party: float
    majority: float
    test_rows: int

    def errors(self) -> dict[str, float]:
        """All errors by name."""
        return {name: error for name, error in asdict(self).items() if name != "test_rows"}


def baselines(data: DemoData) -> Baselines:
    """Train every baseline on the demo's files and test it on the held-out rows.

    Logistic regression is scikit-learn's, with its default C. A party with one class predicts that class. The majority
    is that of the pooled training rows.
    """
    x_test, y_test = read_xy([data.test], data.schema)
    parts = [read_xy([file], data.schema) for file in data.parties.values()]
    x, y = np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])
    alone = [_error(*part, x_test, y_test) for part in parts if len(part[1])]
    majority = 1 if 2 * int((y > 0).sum()) >= len(y) else -1
    return Baselines(
        logistic_pooled=_error(x, y, x_test, y_test),
        best_single_party=min(alone),
        median_single_party=median(alone),
        majority=float(np.mean(y_test != majority)),
        test_rows=len(y_test),
    )


def _error(x: Floats, y: Integers, x_test: Floats, y_test: Integers) -> float:
    if len(np.unique(y)) == 1:
        return float(np.mean(y_test != y[0]))
    classifier = LogisticRegression(max_iter=MOST_ITERATIONS).fit(x, y)
    return float(np.mean(classifier.predict(x_test) != y_test))
