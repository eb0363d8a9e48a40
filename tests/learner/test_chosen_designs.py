"""Designs and numbers of rados that follow from the coordinates, the rows and epsilon."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dpcore.errors import ConfigurationError
from dpcore.queries.kind import MAX_VALUES, FractionBits
from dpcore.queries.moments import MomentsQuery
from dpcore.queries.rados import RadosQuery
from dpcore.rados.designs import GaussianDesign
from dpcore.records.clipping import Clip
from dpcore.records.features import CategoryFeature, RealFeature
from dpcore.records.features.labels import Classes, Label
from dpcore.records.schema import Schema
from learner.number_of_rados import moments_error, noise_ratio, rado_error, rados_for_noise
from learner.requests import ChosenRequest, RadosRequest
from radofed.cli.entry_point import run
from radofed.planning.design_cost import PlanRequest
from radofed.planning.designs import plan_cost
from radofed.simulation.designs import DesignOptions
from tests.federation.learner import SCHEMA, World

BITS = 16
ROWS = (4000, 3000, 5000)


def schema_of(features, **label):
    reals = tuple(RealFeature(name=f"x{place}", lower=-1.0, upper=1.0) for place in range(features))
    return Schema(name="made", label=Label(column="y", positive=("1",)), features=reals, **label)


def request(features=10, **options):
    options = {"epsilon": Fraction(4), "delta": Fraction(1, 10**6)} | options
    return RadosRequest(schema_of(features), design="gaussian", **options)


def test_errors_of_the_covariance_are_those_of_drawn_rados_and_of_drawn_noise():
    """The largest eigenvalue of an estimate's error over that of the covariance, where all coordinates vary alike."""
    random, d, n, rows = np.random.default_rng(1), 60, 900, 40_000
    bound = Clip(Fraction(9), bias=False)
    share = round(0.6 * math.sqrt(rows / 4) * 2**BITS / math.sqrt(2))
    kind = RadosQuery(n, GaussianDesign(bound, share, None))
    ratio = noise_ratio(kind, d, (rows // 2, rows // 2), BITS)
    assert ratio == pytest.approx(0.36, rel=1e-3)
    drawn = random.normal(scale=math.sqrt(1 + ratio), size=(n, d))
    error = np.linalg.norm(drawn.T @ drawn / n - (1 + ratio) * np.eye(d), 2)
    # The square of sqrt(d / n) is left out.
    assert rado_error(kind, d, (rows // 2, rows // 2), BITS) == pytest.approx(error, rel=0.25)
    moments = MomentsQuery(bound, 1, 3_000_000_000)
    released = np.zeros(moments.length(d), dtype=np.int64)
    deviation = moments.moments(released, 10, rows=rows, parties=2).product_noise
    noise = np.triu(random.normal(size=(d, d)) * deviation)
    noise = noise + np.triu(noise, 1).T
    assert moments_error(moments, d, (rows // 2, rows // 2), 10) == pytest.approx(
        np.linalg.norm(noise, 2) / rows, rel=0.15
    )


def test_a_quarter_of_the_best_number_is_taken_within_its_bounds():
    def least_by_search(d, best):
        return min(range(1, 60_000), key=lambda n: (1 + n / best) * math.sqrt(d / n))

    assert least_by_search(5, 1200) == 1200
    assert rados_for_noise(5, lambda n: n / 1200) == 300
    assert rados_for_noise(5, lambda n: n / 8) == 20
    assert rados_for_noise(5, lambda n: 0.0) == 500
    # No more than one query holds.
    assert rados_for_noise(30_000, lambda n: n / 8) == MAX_VALUES // 30_000


def test_gaussian_rados_without_a_number_have_noise_of_a_quarter_of_their_variance():
    asked = request()
    kind, why = asked.kind_and_why(2, ROWS)
    assert kind == asked.kind(2, ROWS)
    assert noise_ratio(kind, 11, ROWS, BITS) == pytest.approx(0.25, rel=0.05)
    assert f"{kind.rados} rados were chosen for 11 coordinates" in why
    assert kind == replace(asked, rados=kind.rados).kind(2, ROWS)
    assert replace(asked, rados=kind.rados).kind_and_why(2, ROWS)[1] == ""
    # More rows and a larger epsilon leave room for more, up to 100 a coordinate; little room leaves 4.
    assert asked.kind(2, [8 * m for m in ROWS]).rados > 4 * kind.rados
    assert replace(asked, epsilon=Fraction(10)).kind(2, [50 * m for m in ROWS]).rados == 1100
    assert replace(asked, epsilon=Fraction(1, 10)).kind(2, ROWS).rados == 44
    # Without any party's rows the noise cannot be compared, and that of a noised table does not depend on the number.
    assert asked.kind(2, ()).rados == 220
    assert replace(asked, design="fixed-support").kind(2, ROWS).rados == 220


def test_only_designs_whose_noise_follows_from_epsilon_choose_their_number():
    with pytest.raises(ConfigurationError, match="needs the number of rados"):
        RadosRequest(schema_of(3), design="fixed-support")
    for missing in ({"design": "gaussian"}, {"design": "plain"}):
        with pytest.raises(ConfigurationError, match="needs the number of rados"):
            RadosRequest(schema_of(3), **missing)


def chosen(features, rows, epsilon=Fraction(1), **options):
    return ChosenRequest(schema_of(features, **options), epsilon=epsilon).kind_and_why(2, rows)


def test_moments_are_chosen_and_both_errors_are_said():
    kind, why = chosen(10, ROWS)
    assert isinstance(kind, MomentsQuery)
    error, rados = moments_error(kind, 11, ROWS, 10), request(epsilon=Fraction(1)).kind(2, ROWS)
    others = rado_error(rados, 11, ROWS, BITS)
    assert error < others
    assert f"about {error:.2g} on their products" in why
    assert f"about {others:.2g} on their covariance" in why


@pytest.mark.parametrize("features", [2, 30, 1000])
def test_moments_have_the_smaller_error_whatever_the_rows_and_epsilon(features):
    for rows in ((3, 3, 3), ROWS, (10**6, 10**6)):
        for epsilon in (Fraction(1, 10), Fraction(3), Fraction(30)):
            moments = ChosenRequest(schema_of(features), epsilon=epsilon).kind(2, rows)
            rados = request(features, epsilon=epsilon).kind(2, rows)
            d = features + 1
            assert moments_error(moments, d, rows, 10) < rado_error(rados, d, rows, BITS)


def test_what_rados_cannot_tell_is_asked_as_moments():
    assert chosen(10, ()) == (
        chosen(10, ROWS)[0],
        "Moments were chosen: no party's rows are known, so their noise was not compared.",
    )
    classes = replace(schema_of(1), label=Classes(column="y", values=("a", "b", "c")))
    kind, why = ChosenRequest(classes, epsilon=Fraction(1)).kind_and_why(2, ROWS)
    assert kind.name == "moments"
    assert why == "Moments were chosen: rados tell of labels of two classes alone."


def test_moments_that_no_query_holds_are_asked_as_rados():
    values = tuple(map(str, range(24_000)))
    schema = Schema(
        name="wide",
        label=Label(column="y", positive=("1",)),
        features=(CategoryFeature(name="x", column="x", values=values),),
    )
    asked = ChosenRequest(schema, epsilon=Fraction(1))
    kind, why = asked.kind_and_why(2, ROWS)
    assert isinstance(kind, RadosQuery)
    assert asked.fraction_bits_for(kind) == FractionBits.exactly(BITS)
    assert asked.fraction_bits_for(chosen(3, ROWS)[0]) == FractionBits.exactly(10)
    assert "too many values" in why


def test_a_query_says_what_was_chosen(learner_key):
    world = World(learner_key, dict.fromkeys(("a", "b", "c"), 4000))
    plan = world.plan(ChosenRequest(SCHEMA, epsilon=Fraction(1)), stated_rows=world.rows)
    assert plan.query.kind.name == "moments"
    assert plan.chosen in plan.sentences()
    rados = RadosRequest(SCHEMA, design="gaussian", epsilon=Fraction(1))
    assert world.plan(rados).chosen.startswith(f"{world.plan(rados).query.kind.rados} rados were chosen")
    given = replace(rados, rados=100)
    assert world.plan(given).chosen == ""
    assert len(world.plan(given).sentences()) == len(world.plan(rados).sentences()) - 1


@pytest.mark.parametrize("coordinates", [11, pytest.param(24_001, marks=pytest.mark.more)])
def test_a_plan_has_the_figures_of_the_design_that_it_chose(coordinates):
    asked = PlanRequest(design="auto", epsilon=Fraction(1), party_rows=ROWS, coordinates=coordinates)
    cost = plan_cost(asked)
    design = "moments" if coordinates == 11 else "gaussian"
    named = plan_cost(replace(asked, design=design, rados=cost.request.rados))
    assert cost.feasible
    assert cost.to_dict() == named.to_dict() | {"choice": cost.choice}
    assert cost.sentences() == [named.sentences()[0], cost.choice, *named.sentences()[1:]]
    assert named.choice is None
    assert (cost.request.rados is None) == (design == "moments")


def test_a_plan_names_the_number_that_it_chose():
    cost = plan_cost(PlanRequest(design="gaussian", epsilon=Fraction(4), party_rows=ROWS, coordinates=11))
    assert cost.request.rados == request().kind(2, ROWS).rados
    assert cost.to_dict()["rados"] == cost.request.rados
    assert cost.choice.startswith(f"{cost.request.rados} rados were chosen")


def test_plans_backwards_and_simulations_take_a_design_by_name(capsys):
    given = ("--rows", "12000", "--parties", "3", "--coordinates", "11")
    assert run(["plan", "--design", "auto", *given, "--worth", "5000"]) == 4
    assert "give its name in place of auto" in capsys.readouterr().err
    with pytest.raises(ConfigurationError, match="a simulation measures one design"):
        DesignOptions(design="auto", epsilon=Fraction(1))


@pytest.mark.parametrize("options", [{"rados": 5}, {"epsilon": None}, {"coordinates": None}])
def test_a_choice_takes_an_epsilon_and_coordinates_alone(options):
    options = {"design": "auto", "epsilon": Fraction(1), "party_rows": ROWS, "coordinates": 5} | options
    with pytest.raises(ConfigurationError, match=r"auto takes no rados|give the epsilon that|give their number"):
        PlanRequest(**options)
