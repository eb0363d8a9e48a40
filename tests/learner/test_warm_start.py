"""A training that starts from an earlier model: what it asks, what is refused before, and what its model says."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dpcore.errors import ConfigurationError, ModelError, RadofedError
from dpcore.estimators.private_newton import PrivateNewton
from dpcore.queries.gradient import THETA_BITS
from dpcore.records.feature_map import Column, FeatureMap, Term
from learner.federation import Federation
from learner.model import Model
from learner.training import AskedTraining, model_of_answers
from learner.warm_start import IN_PARALLEL, IN_SEQUENCE
from tests.federation.learner import SCHEMA, Memory, World, patients
from wire.request_fields import TrainOptions

ROWS = {"ada": 800, "bo": 900, "cy": 700}
DELTA = Fraction(1, 10**6)
FIFTH = Fraction(1, 5)
OCTOBER, NOVEMBER = "2026-10", "2026-11"


@pytest.fixture(scope="module")
def memory(learner_key) -> Memory:
    records = {name: patients(rows, seed, 0.1) for seed, (name, rows) in enumerate(ROWS.items())}
    return Memory(World(learner_key, dict(ROWS)), records)


def trained(memory, directory, epsilon: str = "1", **options) -> Model:
    """As `rado learner train` trains, by two rounds."""
    given = {"to": directory / "model.json", "epsilon": Fraction(epsilon), "rounds": 2, **options}
    training = AskedTraining.of("newton", TrainOptions(**given), SCHEMA)
    return training.run(Federation(memory, SCHEMA, **training.terms)).model


@pytest.fixture(scope="module")
def earlier(memory) -> Model:
    """Of October."""
    oracle = Federation(memory, SCHEMA, epoch=OCTOBER).within(Fraction(2), DELTA)
    return model_of_answers(PrivateNewton(rounds=4).fit_queries(oracle), oracle, "newton")


@pytest.fixture
def saved(earlier, tmp_path):
    def save(**changes):
        path = tmp_path / "earlier.json"
        replace(earlier, **changes).save(path)
        return path

    return save


@pytest.mark.more
def test_the_first_gradient_is_asked_for_at_the_weights_of_the_earlier_model(memory, earlier, saved, tmp_path):
    before = len(memory.asked)
    trained(memory, tmp_path, start_from=saved(), epoch=NOVEMBER)
    trained(memory, tmp_path, epoch=NOVEMBER)
    _, warm, _, cold = (query.kind for query in memory.asked[before:])
    asked = [np.ldexp(kind.basis.matrix.T @ kind.theta, -THETA_BITS) for kind in (warm, cold)]
    assert asked[0] == pytest.approx(earlier.theta, abs=1e-4)
    assert np.abs(asked[1] - earlier.theta).max() > 0.1


def test_another_epoch_costs_the_larger_of_both_and_the_same_rows_the_sum(memory, earlier, saved, tmp_path):
    alone = trained(memory, tmp_path, epoch=NOVEMBER).statement
    said, before = ("epsilon", "epsilon_if_others_collude", "delta"), earlier.statement
    parallel = trained(memory, tmp_path, start_from=saved(), epoch=NOVEMBER)
    assert [getattr(parallel.statement, name) for name in said] == [getattr(before, name) for name in said]
    assert parallel.statement.releases == alone.releases + before.releases
    assert parallel.statement.assumptions[0] == IN_PARALLEL
    assert parallel.epochs == (OCTOBER, NOVEMBER)
    for epoch in (OCTOBER, None):
        summed = trained(memory, tmp_path, start_from=saved(), epoch=epoch)
        for name in said:
            assert getattr(summed.statement, name) == pytest.approx(getattr(alone, name) + getattr(before, name))
            # Shares are whole numbers of a unit that follows from the clip, so two trainings differ by one in 10^8.
            assert getattr(summed.statement, name) > (getattr(alone, name) + getattr(before, name)) * (1 - 1e-6)
        assert summed.statement.assumptions[0] == IN_SEQUENCE
        assert summed.epochs == ((OCTOBER,) if epoch else ())
    # A model that does not say which rows it is of may be of any.
    unknown = trained(memory, tmp_path, start_from=saved(epochs=()), epoch=NOVEMBER)
    assert unknown.statement.epsilon == pytest.approx(alone.epsilon + before.epsilon)


@pytest.mark.more
def test_a_chain_of_months_costs_the_worst_month_and_is_known_to_a_later_one(memory, saved, tmp_path):
    november = trained(memory, tmp_path, start_from=saved(), epoch=NOVEMBER)
    november.save(tmp_path / "november.json")
    december = trained(memory, tmp_path, "3", start_from=tmp_path / "november.json", epoch="2026-12")
    assert 2 < december.statement.epsilon_if_others_collude <= 3
    again = trained(memory, tmp_path, start_from=tmp_path / "november.json", epoch=OCTOBER)
    assert again.statement.epsilon_if_others_collude > november.statement.epsilon_if_others_collude + 0.9


def test_where_it_started_is_saved_with_the_model(memory, earlier, saved, tmp_path):
    model, path = trained(memory, tmp_path, start_from=saved(), epoch=NOVEMBER), tmp_path / "model.json"
    assert model.started_from == earlier.digest
    model.save(path)
    found = Model.load(path)
    assert (found.started_from, found.epochs, found.digest) == (earlier.digest, (OCTOBER, NOVEMBER), model.digest)
    changed = path.read_text().replace(earlier.digest.hex(), "00" * 32)
    path.write_text(changed)
    with pytest.raises(ModelError, match="was changed after it"):
        Model.load(path)
    with pytest.raises(ModelError, match="has not 32 bytes"):
        replace(model, started_from=b"short")


MAP = FeatureMap((Term(Column(0)),), bias=SCHEMA.bias)


@pytest.mark.parametrize(
    ("changes", "options", "reason"),
    [
        ({"schema": replace(SCHEMA, name="other")}, {}, "schema 'other' is another one"),
        ({"feature_map": MAP, "theta": np.zeros(2), "covariance": None}, {}, "learned over a feature map"),
        ({}, {"hold_back": FIFTH}, "trained on all rows, and so on rows that this training holds back"),
        ({"held_back": FIFTH / 2}, {"hold_back": FIFTH}, r"all but a share of 0\.1, and so on rows"),
        ({}, {"delta": 1 - Fraction(1, 10**7)}, "add up to 1: lower --delta"),
    ],
)
def test_a_model_that_is_no_start_is_refused_before_anything_is_asked(
    memory, saved, tmp_path, changes, options, reason
):
    before = len(memory.asked)
    with pytest.raises(ConfigurationError, match=reason):
        trained(memory, tmp_path, start_from=saved(**changes), **options)
    assert len(memory.asked) == before


def test_a_model_without_a_bound_for_records_is_refused(memory, earlier, saved, tmp_path):
    figures = dict.fromkeys(("epsilon", "delta", "epsilon_if_others_collude", "theorem_epsilon"))
    unbounded = replace(earlier.statement, scope="none", **figures)
    with pytest.raises(ConfigurationError, match="nothing bounds what the model's releases reveal"):
        trained(memory, tmp_path, start_from=saved(statement=unbounded))
    oracle = Federation(memory, SCHEMA).within(Fraction(1), DELTA)
    learner = PrivateNewton(rounds=2).fit_queries(oracle)
    with pytest.raises(ConfigurationError, match="start from a model that protects them"):
        model_of_answers(learner, oracle, "newton", replace(earlier, statement=unbounded))


def test_a_changed_file_is_refused(memory, saved, tmp_path):
    path = saved()
    path.write_text(path.read_text().replace('"newton"', '"mewton"'))
    with pytest.raises(ModelError, match="was changed after it was saved"):
        trained(memory, tmp_path, start_from=path)


def test_a_model_that_held_back_more_may_be_a_start(memory, saved, tmp_path):
    assert trained(memory, tmp_path, start_from=saved(held_back=2 * FIFTH), hold_back=FIFTH).held_back == FIFTH
    assert trained(memory, tmp_path, start_from=saved(held_back=FIFTH)).held_back is None


@pytest.mark.parametrize("estimator", ["additive", "logistic-gd"])
def test_estimators_that_do_not_start_from_a_model_say_which_do(saved, tmp_path, estimator):
    options = TrainOptions(to=tmp_path / "model.json", epsilon=Fraction(1), start_from=saved())
    with pytest.raises(ConfigurationError, match=f"{estimator} does not start from a model: .* or choose newton"):
        AskedTraining.of(estimator, options, SCHEMA)


@pytest.mark.parametrize(
    ("start", "reason"),
    [(np.zeros(2), r"the start has shape \(2,\)"), (np.array([0.0, np.nan, 0.0]), "the start is not finite")],
)
def test_weights_that_are_no_start_are_refused_before_anything_is_asked(memory, start, reason):
    before = len(memory.asked)
    with pytest.raises(RadofedError, match=reason):
        PrivateNewton().fit_queries(Federation(memory, SCHEMA).within(Fraction(1), DELTA), start=start)
    assert len(memory.asked) == before
