"""What the demo prints at its end, and when it leaves whole records out."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from dpcore.queries.statement import PrivacyStatement
from dpcore.records.features import Label, RealFeature
from dpcore.records.schema import Schema
from radofed.demo.federation import Shared
from radofed.demo.parts import (
    LEAST_ROWS_PER_COORDINATE,
    MOST_COORDINATES,
    Asked,
    RadosResult,
    WholeRecordsResult,
    why_not,
)
from radofed.demo.run import DemoResult, report
from radofed.demo.tables import Baselines, DemoData

ROWS = {"north": 900, "south": 800, "east": 700, "west": 600}
COMPARED = Baselines(0.201, 0.252, 0.303, 0.404, 500)
RECORD = PrivacyStatement(
    unit="one record", scope="record", epsilon=0.68891, delta=1e-6, epsilon_if_others_collude=0.99999,
    theorem_epsilon=None, assumptions=("a row is a person",), warnings=(),
)  # fmt: skip
FEATURE = PrivacyStatement(
    unit="one record's value of 'smoker'", scope="marginal", epsilon=8.5, delta=1e-6, epsilon_if_others_collude=33.0,
    theorem_epsilon=4000.0, assumptions=("something long",), warnings=("a first", "a second"),
)  # fmt: skip
WHOLE = WholeRecordsResult(
    error=0.212,
    compared=COMPARED,
    rows=ROWS,
    coordinates=18,
    asked=Asked(rounds=8, party_rows=ROWS, honest_parties=2, upload_bytes_per_party=8448, attempts=8),
    statement=RECORD,
    warning=None,
    phases_s={"data and keys": 1.0, "federated training": 4.5},
)
RADOS = RadosResult(
    errors={"radoboost": 0.21, "mean-variance": 0.09},
    compared=COMPARED,
    rows=ROWS,
    release={
        "privacy": FEATURE.to_dict(),
        "rados": {"n": 1000, "d": 65, "unit": "2^-16"},
        "plan": {"upload_bytes_per_party": 531_456},
    },
    sensitive="smoker",
    phases_s={"federated query": 12.0},
)
SHOWN = DemoResult(whole_records=WHOLE, left_out=None, rados=RADOS, own_data=False, directory=None)


def printed(result):
    """The report as it is printed, white space aside."""
    stream = io.StringIO()
    Console(file=stream, width=100, markup=False).print(report(result))
    return " ".join(stream.getvalue().split())


def test_whole_records_come_first_with_what_bounds_them():
    words = printed(SHOWN)
    assert words.startswith("Whole records protected: test error on 500 held-out patients")
    for cell in ("│ newton │ 8 encrypted sums of 4 hospitals, with noise │ 21.2 % │", "20.1 %", "25.2 %", "40.4 %"):
        assert cell in words
    assert (
        "The composition of all 8 answers is differentially private for one whole record, replaced by any other that "
        "the schema allows: epsilon is at most 0.6890 at delta 1e-06 against the learner alone, and at most 1.0000 if "
        "the coordinator and 2 of the 3 other hospitals collude with the learner."
    ) in words
    assert "each hospital sent 8,448 bytes in total, encrypted" in words
    assert "data and keys 1.0, federated training 4.5; 5.5 in total" in words


def test_rados_follow_with_a_short_statement():
    words = printed(SHOWN)
    rados = words[words.index("Rados by DP-FEAT, for 'smoker': test error on 500 held-out rows") :]
    assert "(8.500, 1e-06)-differentially private for one record's value of 'smoker'" in rados
    assert "epsilon is at most 33.00 at the same delta" in rados
    assert "Whole records are not protected here" in rados
    # The whole statement is in JSON.
    for text in ("something long", "a first", "a second", "Assumed", "Warning"):
        assert text not in words
    assert SHOWN.to_dict()["privacy_in_words"][-1] == "Warning: a second"


def test_figures_hold_for_the_smallest_cohort_that_answered():
    three = {name: rows for name, rows in ROWS.items() if name != "west"}
    found = replace(WHOLE, asked=replace(WHOLE.asked, party_rows=three))
    assert "if the coordinator and 1 of the 2 other hospitals collude with the learner" in printed(
        replace(SHOWN, whole_records=found)
    )


def test_what_went_wrong_on_the_way_is_said():
    asked = replace(WHOLE.asked, attempts=9)
    words = printed(replace(SHOWN, whole_records=replace(WHOLE, asked=asked, warning="received 5 of 8 releases")))
    assert "A round was repeated after a failed attempt" in words
    assert "Warning: received 5 of 8 releases" in words
    assert "Warning" not in printed(SHOWN)


def test_of_two_parts_on_the_same_rows_the_second_ends_what_the_first_promises():
    words = printed(replace(SHOWN, own_data=True))
    assert "Both parts queried the same rows" in words
    assert "8 encrypted sums of 4 parties" in words
    assert "patients" not in words
    assert "Both parts" not in printed(SHOWN)


def test_whole_records_that_are_left_out_are_said_to_be():
    result = replace(SHOWN, whole_records=None, left_out="20 rows are too few", own_data=True)
    words = printed(result)
    assert words.startswith("Whole records are not shown: 20 rows are too few.")
    assert "newton" not in words
    assert "Both parts" not in words
    data = result.to_dict()
    assert (data["whole_records"], data["whole_records_left_out"]) == (None, "20 rows are too few")


@pytest.mark.parametrize(
    ("features", "rows", "says"),
    [
        (2, 3 * LEAST_ROWS_PER_COORDINATE - 1, "149 training rows of 3 coordinates are too few"),
        (2, 3 * LEAST_ROWS_PER_COORDINATE, None),
        (MOST_COORDINATES - 1, 1_000_000, None),
        (MOST_COORDINATES, 1_000_000, "257 coordinates are too many"),
    ],
)
def test_tables_that_whole_records_are_shown_on(features, rows, says):
    schema = Schema(
        name="own",
        label=Label(column="y", positive=("1",)),
        features=tuple(RealFeature(name=f"a{number}", lower=0, upper=1) for number in range(features)),
    )
    reason = why_not(Shared(DemoData(schema, {}, Path()), Path(), {"north": rows - 40, "south": 40}))
    assert (reason is None) if says is None else (says in (reason or ""))


def test_operating_says_the_limits():
    text = (Path(__file__).resolve().parents[2] / "docs/operating.md").read_text()
    assert f"fewer than {LEAST_ROWS_PER_COORDINATE} training rows for each coordinate" in text
    assert f"more than {MOST_COORDINATES} coordinates" in text
