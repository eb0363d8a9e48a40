"""`rado plan` backwards: from a wanted accuracy to the smallest epsilon that gives it."""

import json
from fractions import Fraction

import pytest

from radofed.cli.entry_point import run
from radofed.demo.patients import schema

SIZES = ("--rows", "40000", "--parties", "4", "--coordinates", "20")
WANTED = {
    "moments": (("--design", "moments", *SIZES), "30000"),
    "gaussian": (("--design", "gaussian", "--rados", "100", *SIZES), "60"),
    "joint": (("--joint", "--rados", "100", *SIZES), "60"),
    "linear-regression": (("--estimator", "linear-regression", *SIZES), "30000"),
}


def planned(capsys, *arguments, code=0):
    assert run(["plan", *arguments, "--format", "json"]) == code
    found = json.loads(capsys.readouterr().out)
    return found["data"] if code < 2 else found["error"]["message"]


def below(epsilon: str) -> str:
    """The next smaller epsilon of two digits."""
    digits, power = Fraction(epsilon), Fraction(1)
    while digits < 1:
        digits, power = digits * 10, power / 10
    smaller = digits - Fraction(1, 10) if digits > 1 else Fraction(99, 100)
    return str(float(smaller * power))


@pytest.mark.parametrize("name", WANTED)
def test_the_epsilon_is_the_smallest_that_is_enough(capsys, name):
    arguments, worth = WANTED[name]
    found = planned(capsys, *arguments, "--worth", worth)
    assert found["feasible"]
    assert found["worth"] >= float(worth)
    # It is the plan of the epsilon that is found, and the next smaller one is not enough.
    forward = planned(capsys, *arguments, "--epsilon", found["needed_epsilon"])
    assert {**forward, "needed_epsilon": found["needed_epsilon"]} == found
    smaller = planned(capsys, *arguments, "--epsilon", below(found["needed_epsilon"]))
    assert smaller["worth"] < float(worth)


def test_a_tolerance_without_an_epsilon(capsys, tmp_path):
    file = tmp_path / "patients.toml"
    file.write_text(schema().to_toml())
    arguments = ("--statistic", 'x["age"] >= 65', "--schema", str(file), *SIZES[:4], "--tolerance", "0.01")
    found = planned(capsys, *arguments)
    assert found["tolerance"] <= 0.01
    assert planned(capsys, *arguments, "--epsilon", found["needed_epsilon"])["feasible"]
    smaller = planned(capsys, *arguments, "--epsilon", below(found["needed_epsilon"]), code=1)
    assert "cannot keep a tolerance of 0.01" in smaller["reason"]
    # Sampling alone is more than that, so that no epsilon helps.
    refused = planned(capsys, *arguments[:-1], "0.0001", code=4)
    assert "not possible with any epsilon up to 10" in refused
    assert "40000 rows cannot keep" in refused


def test_the_text_says_what_is_needed_first(capsys):
    arguments, worth = WANTED["moments"]
    assert run(["plan", *arguments, "--worth", worth]) == 0
    assert capsys.readouterr().out.startswith(
        "What is wanted needs an epsilon of at least 0.33 in total, under collusion.\n"
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--design", "moments", *SIZES, "--worth", "40001"), "of 40,000; want less, or have more rows"),
        (("--design", "moments", *SIZES, "--worth", "0"), "give a positive one"),
        (("--design", "moments", *SIZES, "--worth", "nan"), "give a positive one"),
        (("--design", "moments", *SIZES, "--worth", "9", "--epsilon", "1"), "leave --epsilon and --share-sd out"),
        (("--design", "moments", *SIZES, "--worth", "9", "--share-sd", "9"), "leave --epsilon and --share-sd out"),
        (("--design", "plain", "--rados", "10", *SIZES, "--worth", "9"), "leave --worth out"),
        (("--design", "dp-feat", "--rados", "10", *SIZES, "--worth", "9"), "this design has no noise"),
        (("--design", "moments", *SIZES, "--tolerance", "0.1"), "--tolerance is of a --statistic"),
    ],
)
def test_what_no_epsilon_gives_is_one_sentence_and_4(capsys, arguments, says):
    assert says in planned(capsys, *arguments, code=4)
