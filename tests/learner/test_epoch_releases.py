"""Releases of several epochs train one model, if they add up."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dpcore.errors import ConfigurationError
from dpcore.estimators.mean_variance import MeanVariance
from dpcore.queries.statement import statement_for
from dpcore.records.held_back import HeldBack, Part
from learner.epoch_releases import EpochReleases
from learner.release import Release
from learner.requests import GradientRequest, MomentsRequest, RadosRequest
from learner.training import digest_of_releases, fitted, train
from tests.federation.learner import SCHEMA, World, patients
from wire.query import setting_of

ASKED = MomentsRequest(SCHEMA, epsilon=Fraction(2))
ROWS = {"ada": 100, "bo": 200, "cy": 300}


@pytest.fixture(scope="module")
def world(learner_key):
    return World(learner_key, ROWS)


def release(world: World, epoch: str | None, request=ASKED, seed: int = 1) -> Release:
    """Of 600 patients, with noise."""
    opened = world.ask(replace(request, epoch=epoch))
    query, random = opened.query, np.random.default_rng(seed)
    records = query.seen(patients(600, seed))
    bits, shape = query.encoding.fraction_bits, query.kind.shape(query.d)
    if query.kind.name == "moments":
        noise = np.round(random.normal(0, query.kind.share_sigma * 3**0.5, query.length)).astype(np.int64)
        integers = query.kind.sums(records, bits) + noise
    else:
        integers = random.integers(-(1 << bits), 1 << bits, shape)
    total, rows = world.total(opened, ROWS), list(ROWS.values())
    terms = {"schema": SCHEMA, "setting": setting_of(query), "epoch": epoch}
    statement = statement_for(query.kind, rows, query.delta, **terms)
    parts = (opened.envelope, world.roster_envelope, total.cohort, total.receipts)
    return Release(*parts, statement, 1_800_000_000, integers.reshape(shape))


@pytest.fixture(scope="module")
def two(world):
    return release(world, "2026-11"), release(world, "2026-12", seed=2)


def test_a_model_of_two_epochs_has_the_statement_of_one_and_names_both(two):
    model = train(EpochReleases(two), "mean-variance")
    assert model.release_digest == digest_of_releases([each.digest for each in two])
    assert np.array_equal(model.theta, MeanVariance().fit_moments(EpochReleases(two).moments).theta_)
    said, alone = model.statement, two[0].statement
    assert (said.releases, said.scope, said.unit) == (2, alone.scope, alone.unit)
    assert said.epsilon_if_others_collude == pytest.approx(alone.epsilon_if_others_collude)
    assert said.epsilon == pytest.approx(alone.epsilon)
    assert "2 different epochs of rows" in said.assumptions[0]
    assert {"2026-11", "2026-12"} <= {word for text in said.assumptions for word in text.split()}
    assert EpochReleases(two).rows == EpochReleases(two).cohort_rows == 1200


def test_forgetting_weighs_the_older_epoch_less(two):
    models = [train(EpochReleases(two, factor), "mean-variance").theta for factor in (Fraction(1), Fraction(1, 50))]
    newest = train(two[1], "mean-variance").theta
    assert np.abs(models[1] - newest).max() < 0.2 * np.abs(models[0] - newest).max()


def test_a_release_says_which_epoch_it_is_about_and_reads_back(two, tmp_path):
    two[0].save(tmp_path / "release")
    found = Release.load(tmp_path / "release")
    assert (found.query.epoch, found.to_json()["epoch"]) == ("2026-11", "2026-11")


def test_rados_of_epochs_train_an_estimator_of_rados(world):
    plain = RadosRequest(SCHEMA, 20, design="plain")
    releases = tuple(release(world, epoch, plain) for epoch in ("a", "b"))
    pooled = EpochReleases(releases)
    assert np.array_equal(pooled.sample.rados, releases[0].rados + releases[1].rados)
    assert fitted(pooled, "radoboost").theta_.shape == (SCHEMA.d,)
    assert pooled.statement.scope == releases[0].statement.scope
    with pytest.raises(ConfigurationError, match="only moments can be weighted"):
        EpochReleases(releases, Fraction(1, 2))


def test_dp_feat_rados_of_epochs_keep_the_figures_of_their_feature(world):
    asked = RadosRequest(SCHEMA, 5, design="dp-feat", sensitive="smoker")
    releases = tuple(release(world, epoch, asked) for epoch in ("a", "b"))
    statement = EpochReleases(releases).statement
    assert statement.scope == "marginal"
    assert statement.epsilon == pytest.approx(releases[0].statement.epsilon, rel=1e-3)


def test_releases_that_do_not_add_up_are_refused(world, two):
    first, second = two
    part = replace(ASKED, held_back=HeldBack(Fraction(1, 5), Part.TRAINING))
    rados = RadosRequest(SCHEMA, 20, design="gaussian", epsilon=Fraction(1))
    for releases, reason in (
        ((first,), "at least two"),
        ((first, release(world, None)), "release 2 is about all rows"),
        ((first, second, release(world, "2026-11", seed=3)), "release 3 is about epoch 2026-11 as another one is"),
        ((first, release(world, "2026-12", part)), "differ in their part of the rows"),
        ((first, release(world, "2026-12", rados)), "differ in their kind"),
    ):
        with pytest.raises(ConfigurationError, match=reason):
            EpochReleases(tuple(releases))


def test_a_single_answer_to_an_estimator_that_asks_is_no_sample(world):
    asked = GradientRequest(SCHEMA, (0.0,) * SCHEMA.d, epsilon=Fraction(1), clip=Fraction(1))
    releases = tuple(release(world, epoch, asked) for epoch in ("a", "b"))
    with pytest.raises(ConfigurationError, match="a single answer to an estimator that sends queries"):
        fitted(EpochReleases(releases), "mean-variance")
