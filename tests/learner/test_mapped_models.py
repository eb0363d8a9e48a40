"""Models over a feature map: trained by queries and on a release, saved, and applied to rows."""

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dpcore.errors import ModelError, SchemaError, ShapeError
from dpcore.estimators.additive import PrivateAdditive
from dpcore.evaluation.evaluation import evaluate
from dpcore.evaluation.options import EvaluationOptions
from dpcore.numbers.fixed_point import ONE
from dpcore.queries.statement import statement_for
from dpcore.randomness.sources import SeededRandom
from dpcore.records.computation import Computation
from dpcore.records.encoding import store
from dpcore.records.feature_map import Column, FeatureMap, Hat, Term
from dpcore.records.features import Label, RealFeature
from dpcore.records.records import Records
from dpcore.records.schema import Schema
from learner.model import Model
from learner.predictions import error_rate, predict
from learner.release import Release
from learner.report.measured import measure
from learner.requests import MomentsRequest, RadosRequest
from learner.training import model_of_answers, train
from radobase.tables.tables import encoded_blocks, read_rows
from radofed.simulation.oracles import simulated_federation
from tests.federation.learner import SCHEMA as FLAGS
from tests.federation.learner import World
from wire.query import setting_of

SCHEMA = Schema(
    name="bent",
    label=Label(column="ill", positive=("yes",), negative=("no",)),
    features=(RealFeature(name="age", lower=0.0, upper=100.0), RealFeature(name="dose", lower=0.0, upper=1.0)),
)
DELTA = Fraction(1, 10**6)
# High in the middle: no straight line separates it.
BENT = FeatureMap((Term(Column(0)), Term(Hat(0, -ONE, 0, ONE), ONE // 2), Term(Column(1))), bias=True)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Ill between 25 and 75 years, in most cases."""
    random = np.random.default_rng(3)
    age, dose = random.uniform(0, 100, 6000), random.uniform(0, 1, 6000)
    ill = (np.abs(age - 50) < 25) ^ (random.random(6000) < 0.05)
    path = tmp_path_factory.mktemp("bent") / "rows.csv"
    rows = (f"{a:.3f},{d:.3f},{'yes' if i else 'no'}" for a, d, i in zip(age, dose, ill, strict=True))
    path.write_text("\n".join(["age,dose,ill", *rows]) + "\n")
    return path


@pytest.fixture(scope="module")
def federation(table):
    return simulated_federation(table, schema=SCHEMA, parties=4, seed=2, encrypt=True)


@pytest.fixture(scope="module")
def fitted(federation):
    """An additive model by encrypted queries, and its estimator."""
    oracle = federation.within(Fraction(2), DELTA)
    estimator = PrivateAdditive(rounds=6).fit_queries(oracle)
    return model_of_answers(estimator, oracle, "additive"), estimator, oracle


@pytest.mark.more
def test_it_learns_the_bend_from_encrypted_answers_within_the_budget(fitted, table):
    model, estimator, oracle = fitted
    assert error_rate(model, table) < 0.12
    assert model.feature_map == estimator.feature_map_
    assert [answer.query.kind.name for answer in oracle.answers] == ["statistic", "moments", *["gradient"] * 4]
    assert oracle.answers[0].query.feature_map is None
    assert {answer.query.feature_map for answer in oracle.answers[1:]} == {model.feature_map}
    assert 1.9 < model.statement.epsilon_if_others_collude <= 2
    assert model.statement.scope == "record"


@pytest.mark.more
def test_it_is_saved_and_gives_the_same_scores(fitted, table, tmp_path):
    model, estimator, _ = fitted
    model.save(tmp_path / "model.json")
    loaded = Model.load(tmp_path / "model.json")
    assert loaded.digest == model.digest
    assert loaded.feature_map == model.feature_map
    x = np.column_stack([np.random.default_rng(4).uniform(-1, 1, (50, 2)), np.ones(50)])
    np.testing.assert_array_equal(loaded.scores(x), estimator.decision_function(x))
    np.testing.assert_array_equal(predict(loaded, table).scores, predict(model, table).scores)
    names = [name for name, _ in json.loads((tmp_path / "model.json").read_text())["theta"]]
    assert names[0] == "age"
    assert names[1].startswith("age~")
    assert names[-1] == "bias"


def test_contributions_add_up_to_the_scores(fitted):
    model, x = fitted[0], np.column_stack([np.random.default_rng(4).uniform(-1, 1, (50, 2)), np.ones(50)])
    found = model.contributions(x)
    assert set(found) == {("age",), ("dose",), ("age", "dose"), ()}
    np.testing.assert_allclose(sum(found.values()), model.scores(x), atol=1e-9)
    # The age alone decides, so that it adds nearly all that changes from row to row.
    assert np.std(found["age",]) > 5 * max(np.std(found["dose",]), np.std(found["age", "dose"]))
    moved = x.copy()
    moved[:, 1] = -moved[:, 1]
    np.testing.assert_array_equal(model.contributions(moved)["age",], found["age",])
    straight = replace(model, theta=np.array([2.0, -1.0, 0.5]), feature_map=None, covariance=None)
    assert [float(value[0]) for value in straight.contributions(np.array([[0.5, 1.0, 1.0]])).values()] == [1, -1, 0.5]


def test_a_changed_map_is_refused(fitted, tmp_path):
    fitted[0].save(tmp_path / "model.json")
    content = json.loads((tmp_path / "model.json").read_text())
    content["feature_map"][1]["peak"] += 1
    (tmp_path / "model.json").write_text(json.dumps(content))
    with pytest.raises(ModelError, match="was changed"):
        Model.load(tmp_path / "model.json")


@pytest.mark.parametrize("design", ["moments", "gaussian"])
def test_estimators_of_releases_learn_over_a_map(learner_key, table, design):
    """Rados of mapped records, and their moments. Without a map mean-variance errs on half of the rows."""
    world = World(learner_key, {"ada": 1000, "bo": 2000, "cy": 3000})
    rows = encoded(table)
    for feature_map, most, least in ((BENT, 0.2, 0.0), (None, 1.0, 0.35)):
        terms = {"epsilon": Fraction(6), "norm_bound": Fraction(9, 5), "feature_map": feature_map}
        request = (
            MomentsRequest(SCHEMA, **terms)
            if design == "moments"
            else RadosRequest(SCHEMA, 400, design="gaussian", **terms)
        )
        release = release_of(world, world.ask(request), rows)
        model = train(release, "mean-variance")
        assert model.feature_map == feature_map
        assert least < error_rate(model, table) < most
        if design == "gaussian":
            assert least < error_rate(train(release, "radoboost"), table) < most


def encoded(table) -> Records:
    (block,) = encoded_blocks(table, SCHEMA, label=True)
    return Records(store(block.x), block.labels, block.usable)


def release_of(world: World, opened, rows: Records) -> Release:
    """The release of all rows as one party's, with its noise."""
    query = opened.query
    values = query.kind.contribution(query.seen(rows), query.encoding.fraction_bits, Computation(SeededRandom(1)))
    total = world.total(opened, world.rows)
    sizes = list(world.rows.values())
    statement = statement_for(query.kind, sizes, query.delta, schema=SCHEMA, setting=setting_of(query))
    made = (opened.envelope, world.roster_envelope, total.cohort, total.receipts, statement, 1_800_000_000)
    return Release(*made, values.reshape(query.kind.shape(query.d)))


@pytest.mark.more
def test_its_evaluation_by_encrypted_statistics_is_that_of_its_scores(fitted, federation, table):
    """And not that of the same weights on other coordinates: the parties map their rows by the model's map."""
    model = fitted[0]
    oracle = federation.within(Fraction(8), DELTA)
    found = evaluate(model.theta, oracle, EvaluationOptions(confidence=0.9999), feature_map=model.feature_map)
    assert len(oracle.answers) == 2
    for answer in oracle.answers:
        assert (answer.query.kind.name, answer.query.feature_map) == ("statistic", model.feature_map)
        assert answer.query.kind.sensitivity.l1 == 2
    low, high = found.error.on_rows.lower, found.error.on_rows.upper
    assert low <= error_rate(model, table) <= high < low + 0.02
    assert not found.unseen
    assert oracle.statement().scope == "record"
    assert oracle.statement().epsilon_if_others_collude <= 8


def test_own_rows_are_measured_by_its_scores(fitted, table):
    found = measure(fitted[0], table).figures
    assert found.error.estimate == pytest.approx(error_rate(fitted[0], table))
    assert found.auc.estimate > 0.9


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_an_exported_model_decides_as_the_model(fitted, table):
    """As scikit-learn pipeline: every map that the estimator makes."""
    model, rows = fitted[0], read_rows(table, SCHEMA)
    x, usable = rows.x, rows.usable
    margins = model.to_sklearn()[1:].decision_function(x[usable, :-1])
    np.testing.assert_allclose(margins, model.scores(x[usable]), atol=2.0**-20)
    assert len(model.to_original_units()["terms"]) == len(model.feature_map.terms)


def test_a_model_whose_parts_do_not_fit(fitted):
    model = fitted[0]
    with pytest.raises(ShapeError, match="train again"):
        replace(model, theta=model.theta[:-1])
    with pytest.raises(ShapeError, match="train again"):
        replace(model, feature_map=None)
    with pytest.raises(SchemaError, match="no real feature"):
        flags = FeatureMap((Term(Hat(1, None, 0, ONE)),), bias=True)
        replace(model, theta=np.zeros(2), schema=FLAGS, feature_map=flags)
