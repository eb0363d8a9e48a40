"""The demo's made-up patients: as they are documented, the same every time, unequal over hospitals."""

import csv

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from radofed.demo.tables import BASE, DIAGNOSES, PATIENTS_OWN_SHARE, ROWS, patients, read_xy, schema


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return patients(tmp_path_factory.mktemp("patients") / "data", 4)


def rows_of(*files):
    return [row for file in files for row in csv.DictReader(file.open())]


@pytest.mark.more
def test_four_hospitals_of_unequal_size(made):
    assert tuple(made.parties) == ("north", "south", "east", "west")
    sizes = [len(read_xy([file], made.schema)[1]) for file in made.parties.values()]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > 3 * sizes[3]
    held_out = len(read_xy([made.test], made.schema)[1])
    assert (sum(sizes), held_out) == (16_000, 4_000)
    assert ROWS == 20_000


@pytest.mark.more
def test_they_are_the_same_every_time(made, tmp_path):
    again = patients(tmp_path / "data", 4)
    for name, file in made.parties.items():
        assert file.read_bytes() == again.parties[name].read_bytes()
    assert made.test.read_bytes() == again.test.read_bytes()


@pytest.mark.more
def test_a_hospital_treats_its_own_diagnoses(made):
    """North owns 3.2 of 8 diagnoses, the first three of them alone."""
    own = list(DIAGNOSES)[:3]
    there = {name: sum(row["diagnosis"] in own for row in rows_of(file)) for name, file in made.parties.items()}
    assert there["north"] / sum(there.values()) == pytest.approx(PATIENTS_OWN_SHARE, abs=0.004)
    assert all(set(DIAGNOSES) == {row["diagnosis"] for row in rows_of(file)} for file in made.parties.values())


@pytest.mark.more
def test_who_comes_back_follows_the_documented_score(made):
    """Logistic regression without a penalty finds the weights again, within four of its standard errors."""
    rows = rows_of(*made.parties.values(), made.test)
    weights = {
        "age": (0.05, 60.0), "body_mass_index": (0.05, 27.0), "systolic_mmhg": (0.012, 128.0),
        "haemoglobin_g_dl": (-0.3, 13.6), "earlier_stays": (0.4, 1.0),
    }  # fmt: skip
    flags = {"smoker": 0.7, "diabetic": 0.9, "emergency": 0.8, "follow_up_booked": -1.1}
    columns = [[float(row[name]) - centre for row in rows] for name, (_, centre) in weights.items()]
    columns += [[row[name] == "yes" for row in rows] for name in flags]
    columns += [[row["diagnosis"] == name for row in rows] for name in DIAGNOSES]
    x = np.array(columns, dtype=float).T
    back = np.array([row["back_within_30_days"] == "yes" for row in rows])
    model = LogisticRegression(C=1e6, fit_intercept=False, max_iter=5000).fit(x, back)
    chance = model.predict_proba(x)[:, 1]
    errors = np.sqrt(np.diag(np.linalg.inv((x.T * (chance * (1 - chance))) @ x)))
    expected = [weight for weight, _ in weights.values()] + list(flags.values())
    expected += [BASE + effect for effect in DIAGNOSES.values()]
    assert np.abs((model.coef_[0] - expected) / errors).max() < 4
    assert errors.max() < 0.1


@pytest.mark.more
@pytest.mark.parametrize("parties", [2, 50])
def test_any_number_of_hospitals_fits_the_schema(tmp_path, parties):
    data = patients(tmp_path / "data", parties)
    sizes = [len(read_xy([file], data.schema)[1]) for file in data.parties.values()]
    assert len(sizes) == parties
    assert sum(sizes) == 16_000
    assert min(sizes) > 100
    assert schema().d == 18
