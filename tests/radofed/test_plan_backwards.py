"""`rado plan` backwards: from a wanted accuracy to the smallest epsilon that gives it."""

import json
import math
from dataclasses import dataclass
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcore.errors import ConfigurationError
from radofed.cli.entry_point import run
from radofed.demo.tables import schema
from radofed.planning.from_options import smallest_epsilon
from radofed.planning.signal import Signal
from tests.examples import examples

SIZES = ("--rows", "40000", "--parties", "4", "--coordinates", "20")
EPSILONS = [Fraction(d, 10) * Fraction(10) ** power for power in range(-4, 2) for d in range(10, 100)]
EPSILONS = [each for each in EPSILONS if each <= 10]
WANTED = {
    "moments": (("--design", "moments", *SIZES), "30000"),
    "gaussian": (("--design", "gaussian", "--rados", "100", *SIZES), "60"),
    "joint": (("--design", "dp-feat", "--joint", "--rados", "100", *SIZES), "60"),
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
    # It is the plan of the epsilon that is found, and the next smaller one, the lower bound, is not enough.
    forward = planned(capsys, *arguments, "--epsilon", found["needed_epsilon"])
    needed = {name: found[name] for name in ("needed_epsilon", "needed_epsilon_is_at_least")}
    assert {**forward, **needed} == found
    assert float(found["needed_epsilon_is_at_least"]) == float(below(found["needed_epsilon"]))
    smaller = planned(capsys, *arguments, "--epsilon", found["needed_epsilon_is_at_least"])
    assert smaller["worth"] < float(worth)


@pytest.mark.more
def test_a_tolerance_without_an_epsilon(capsys, tmp_path):
    file = tmp_path / "patients.toml"
    file.write_text(schema().to_toml())
    arguments = ("--statistic", 'x["age"] >= 65', "--schema", str(file), *SIZES[:4], "--tolerance", "0.01")
    found = planned(capsys, *arguments)
    assert found["tolerance"] <= 0.01
    assert "needed_epsilon_is_at_least" not in found
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
        "What is wanted needs an epsilon of more than 0.26 in total, under collusion. This plan is for 0.27, which may "
        "be too little.\n"
    )


@dataclass(frozen=True)
class Plan:
    """A plan whose worth is a function of epsilon, and what it asks a step of it."""

    worth: float
    questions: tuple
    feasible: bool = True
    reason: str = "too little"
    suggestion: str | None = None

    @property
    def signal(self):
        return Signal(math.sqrt(1000 / self.worth - 1), 1000, 1)


@dataclass(frozen=True)
class Request:
    epsilon: Fraction


@pytest.mark.more
@settings(max_examples=examples(50, 200))
@given(
    # From each of these epsilons on more is asked, and each answer is worth less.
    st.lists(st.tuples(st.integers(1, 9999), st.floats(0.05, 1)), max_size=4),
    st.integers(0, 3000),
    st.floats(1, 999),
)
def test_no_smaller_epsilon_is_enough_although_more_is_asked_at_larger_ones(steps, first, wanted):
    """The search finds the first epsilon that is enough, where more epsilon may be worth less."""

    def bare_cost(request):
        units = request.epsilon * 10_000
        passed = [share for at, share in steps if units >= 10 * at]
        worth = 1000 * float(units) / (float(units) + 2000) * math.prod(passed)
        return Plan(worth, (len(passed),), feasible=units >= first)

    enough = [each for each in EPSILONS if (it := bare_cost(Request(each))).feasible and it.signal.worth >= wanted]
    if not enough:
        with pytest.raises(ConfigurationError):
            smallest_epsilon(Request(Fraction(10)), wanted, bare_cost)
        return
    needed, too_little = smallest_epsilon(Request(Fraction(10)), wanted, bare_cost)
    assert needed == enough[0]
    assert too_little == max((each for each in EPSILONS if each < needed), default=0)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--design", "moments", *SIZES, "--worth", "40001"), "of 40,000; want less, or have more rows"),
        (("--design", "moments", *SIZES, "--worth", "0"), "give a positive one"),
        (("--design", "moments", *SIZES, "--worth", "nan"), "'nan' is not a number"),
        (("--design", "moments", *SIZES, "--worth", "9", "--epsilon", "1"), "leave --epsilon and --share-sd out"),
        (("--design", "moments", *SIZES, "--worth", "9", "--share-sd", "9"), "leave --epsilon and --share-sd out"),
        (("--design", "plain", "--rados", "10", *SIZES, "--worth", "9"), "leave --worth out"),
        (("--design", "dp-feat", "--rados", "10", *SIZES, "--worth", "9"), "this design has no noise"),
        (("--design", "moments", *SIZES, "--tolerance", "0.1"), "--tolerance is of a --statistic"),
    ],
)
def test_what_no_epsilon_gives_is_one_sentence_and_4(capsys, arguments, says):
    assert says in planned(capsys, *arguments, code=4)
