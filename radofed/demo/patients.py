"""Synthetic patients: a table that is large enough to protect whole records.

No row describes a person. A patient's age, habits and measurements are drawn first. The patient then comes back within
30 days with probability 1 / (1 + exp(-s)). The score s is the sum of

- 0.05 for a year of age beyond 60, 0.05 for a unit of body-mass index beyond 27;
- 0.012 for a mmHg of systolic pressure beyond 128, -0.3 for a g/dl of haemoglobin beyond 13.6;
- 0.4 for each earlier stay but the first, 0.7 for smoking, 0.9 for diabetes;
- 0.8 for an emergency, -1.1 if a follow-up visit is booked;
- the number of DIAGNOSES for the diagnosis, and BASE.

The compared models are linear too: the errors of pooled logistic regression are mostly chance.

The seed is fixed, so every run has the same patients. Privacy does not depend on it: the demo's keys, masks and noise
come from the operating system's randomness.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpcore.records.features import BooleanFeature, CategoryFeature, Label, RealFeature
from dpcore.records.schema import Schema
from radofed.demo.tables import CsvRows, DemoData, Floats, Integers, divide, specialists

ROWS = 20_000
SEED = 2015
OWN_SHARE = 0.99
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
    return divide(directory, rows, schema(), diagnosis, specialists(len(DIAGNOSES), parties, OWN_SHARE))


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
