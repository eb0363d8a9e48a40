"""Learners that ask, in a simulation: answers of the training rows with fresh noise each time, counted and printed."""

import gzip
import itertools
import json
from csv import DictReader
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow.parquet as pq
import pytest

from dpcore.errors import ConfigurationError, RadofedError
from dpcore.predicates.expressions import AtLeast, Flag, LabelIs
from dpcore.records.records import Records
from dpcore.records.schema import CategoryFeature
from learner.estimators import BY_QUERIES, EVENT_TIMES, make_estimator
from learner.requests import StatisticRequest
from radofed.cli.entry_point import run
from radofed.simulation import federation as federation_module
from radofed.simulation.federation import SimulatedFederation
from radofed.simulation.oracles import Budget, SimulatedSource
from radofed.simulation.workers import LocalHosts, SimulationError
from tests.federation.material import secret_key
from tests.radofed.simulation_world import ROWS, SCHEMA, figures, made_up, simulate

pytestmark = pytest.mark.more

STEPS = range(-150, 150, 5)
LADDER = tuple(AtLeast("x0", Fraction(step, 100)) for step in STEPS)
HALF = Fraction(1, 2)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return made_up(tmp_path_factory.mktemp("asking") / "made_up.csv.gz")


@pytest.fixture(scope="module")
def rows(table):
    with gzip.open(table, "rt") as file:
        return list(DictReader(file))


class Asker:
    """Asks the same batch twice, and predicts by whether members are more often positive."""

    seen: list = []  # noqa: RUF012  (what all copies saw)

    def __init__(self, batch=LADDER, rounds=2):
        self.batch, self.rounds = batch, rounds

    def fit_queries(self, oracle):
        part = Fraction(1, self.rounds)
        found = [oracle.statistic(self.batch, part=part) for _ in range(self.rounds)]
        Asker.seen.append((found, oracle))
        self.sign = 1.0 if found[0].values[0] > -1 else -1.0
        return self

    def decision_function(self, X):
        return self.sign * X[:, 0]


def asked(table, estimators=None, **options):
    Asker.seen = []
    options = {"schema": SCHEMA, "epsilon": 1, **options}
    result = simulate(table, estimators=estimators or {"mine": Asker()}, **options)
    return result, list(Asker.seen)


def test_a_simulation_s_estimators_may_ask_adaptive_questions(table):
    given = {"parties": 3, "folds": 2, "adaptive": 2, "epsilon": 100}
    _, seen = asked(table, {"mine": Asker(LADDER[:1])}, **given)
    assert all("up to 2 questions together" in estimates.premise for found, _ in seen for estimates in found)
    with pytest.raises(ConfigurationError, match="leave adaptive out"):
        asked(table, "mean-variance", **given)
    with pytest.raises(RadofedError, match="moments have no tolerance"):
        asked(table, "newton", **given)


def counts(rows, places):
    x0 = np.array([float(rows[place]["x0"]) for place in places])
    return np.array([(x0 >= step / 100).sum() for step in STEPS])


def noises(rows, seen, folds):
    """The noise on every count, for each fold and question. Training rows are those of scikit-learn's split."""
    from sklearn.model_selection import StratifiedKFold

    positive = np.array([row["y"] == "in" for row in rows])
    splits = StratifiedKFold(folds, shuffle=True, random_state=2).split(positive, positive)
    return [
        [estimates.values * estimates.rows - counts(rows, training) for estimates in found]
        for (training, _), (found, _) in zip(splits, seen, strict=True)
    ]


def test_answers_are_the_training_rows_sums_with_the_noise_they_state(table, rows):
    result, seen = asked(table, folds=2, epsilon="0.5")
    assert [row.sees for row in result.rows if row.learner == "mine"] == ["answers"] * 2
    drawn, beyond = [], 0
    for found, (answers, _) in zip(noises(rows, seen, 2), seen, strict=True):
        for noise, estimates in zip(found, answers, strict=True):
            assert estimates.rows == ROWS // 2
            beyond += np.abs(noise).max() > estimates.noise * estimates.rows
            drawn += list(noise / (estimates.deviation * estimates.rows))
    # Each answer of 16 is beyond its width with a probability of at most 1/20.
    assert beyond <= 3
    # Of 240 values the deviation is within 18 % with four standard errors: 0.7 and 1.3 are refused.
    assert np.std(drawn) == pytest.approx(1.0, abs=0.18)
    assert abs(np.mean(drawn)) < 4 / np.sqrt(len(drawn))


def test_no_two_questions_share_noise_or_a_nonce(table, rows):
    """Neither two rounds, nor two folds, nor two learners of one class."""
    _, seen = asked(table, estimators={"mine": Asker(), "mine/1": Asker()}, folds=2)
    by_learner = [seen[0::2], seen[1::2]]
    drawn = [tuple(noise) for part in by_learner for fold in noises(rows, part, 2) for noise in fold]
    assert len(set(drawn)) == len(drawn) == 8
    correlated = np.corrcoef(np.array(drawn)) - np.eye(8)
    assert np.abs(correlated).max() < 0.55
    answers = [answer for _, oracle in seen for answer in oracle.answers]
    assert len({answer.query.nonce for answer in answers}) == len({answer.digest for answer in answers}) == 8


@pytest.mark.more
def test_the_same_seed_gives_the_same_answers_encrypted_or_not(table):
    bare, first = asked(table, folds=2, parties=3)
    sealed, second = asked(table, folds=2, parties=3, encrypt=True, key_bits=2048)
    _, other = asked(table, folds=2, parties=3, seed=3)
    for (a, _), (b, _), (c, _) in zip(first, second, other, strict=True):
        assert all(np.array_equal(x.values, y.values) for x, y in zip(a, b, strict=True))
        assert not np.array_equal(a[0].values, c[0].values)
    assert figures(bare) == figures(sealed)
    assert bare.asked == sealed.asked
    assert sealed.federation.encrypted


def test_what_is_asked_travels_encrypted(table, monkeypatch):
    multiply = federation_module.multiply

    def altered(key, chunks):
        product = key.from_wire(multiply(key, chunks))
        product[0] = product[0] * (1 + key.n) % key.n_squared  # one row more in the check slot
        return key.to_wire(product)

    monkeypatch.setattr(federation_module, "multiply", altered)
    with pytest.raises(SimulationError, match=r"'mine' failed on fold 1.*counts"):
        asked(table, encrypt=True, key_bits=2048)


def test_the_composition_of_a_learners_answers_costs_at_most_its_budget(table):
    result, seen = asked(table, estimators={"mine": Asker(), "other": Asker(rounds=1)})
    assert result.privacy is None
    assert result.federation.design is None
    assert list(result.asked) == ["mine", "other"]
    for statement in result.asked.values():
        assert statement.scope == "record"
        assert 0.95 < statement.epsilon_if_others_collude <= 1
        assert statement.epsilon < statement.epsilon_if_others_collude
    assert seen[0][1].statement() == result.asked["mine"]
    assert "composition of 2 releases" in result.asked["mine"].assumptions[0]
    (said,) = (note for note in result.notes if "had the whole epsilon and delta" in note)
    assert "charges each" in said
    data = result.to_dict()
    assert data["privacy"] is None
    assert data["asked"]["other"]["epsilon"] == result.asked["other"].epsilon
    text = "\n".join(result.sentences())
    assert "What the answers to 'mine' protect" in text
    assert "What a federation's release" not in text


def test_without_delta_the_noise_is_laplace_s_alone(table):
    result, seen = asked(table, delta=0)
    assert result.asked["mine"].delta == 0
    assert 0.99 < result.asked["mine"].epsilon_if_others_collude <= 1
    assert {type(answer.query.kind.noise).__name__ for _, oracle in seen for answer in oracle.answers} == {
        "LaplaceShares"
    }


def test_beside_learners_of_releases_there_is_a_design_and_its_figures_stay(table):
    shared = {"design": "gaussian", "rados": 30, "epsilon": 5}
    alone, _ = asked(table, estimators="mean-variance", **shared)
    both, _ = asked(table, estimators={"mine": Asker(), **_named("mean-variance")}, **shared)
    assert alone.asked == {}
    assert both.asked["mine"].epsilon_if_others_collude <= 5
    assert both.privacy == alone.privacy
    assert [row for row in figures(both) if row[1] != "mine"] == figures(alone)
    assert any("made its own release" in note for note in both.notes)
    assert both.federation.design == "gaussian"


def _named(name):
    return {name: make_estimator(name)}


def test_where_all_ask_no_design_is_planned(table, monkeypatch):
    planned = []
    plan = SimulatedFederation.plan
    monkeypatch.setattr(
        SimulatedFederation, "plan", lambda self, *arguments: planned.append(arguments[0]) or plan(self, *arguments)
    )
    result, _ = asked(table, estimators={"mine": Asker(), **_row_learner()})
    assert set(planned) == {None}
    assert {row.learner: row.sees for row in result.rows}["rows"] == "rows"
    assert result.federation.rados is None
    assert result.federation.upload_bytes_per_party is None
    assert (result.federation.colluders, result.federation.honest_parties) == (1, 3)


def _row_learner():
    from sklearn.naive_bayes import GaussianNB

    class OfRows:
        def fit(self, X, y):
            self.model = GaussianNB().fit(X, y)

        def decision_function(self, X):
            return self.model.predict_proba(X)[:, 1] - 0.5

    return {"rows": OfRows()}


def test_who_asks_nothing_has_no_statement(table):
    class Silent(Asker):
        def fit_queries(self, oracle):
            self.sign = 1.0
            return self

    result, _ = asked(table, estimators={"silent": Silent()})
    assert result.asked == {}
    assert "What the answers" not in "\n".join(result.sentences())


def test_privacy_is_that_of_the_fold_that_costs_most(table):
    class Uneven(Asker):
        def fit_queries(self, oracle):
            self.sign = 1.0
            for _ in range(1 if len(Asker.seen) == 1 else 3):
                oracle.statistic((LabelIs(positive=True),), part=Fraction(1, 4))
            Asker.seen.append(oracle)

    result, seen = asked(table, estimators={"uneven": Uneven()})
    assert [len(oracle.answers) for oracle in seen] == [3, 1, 3]
    # What is left counts as one release, whose noise is rounded up once.
    assert seen[0].cost().epsilon_if_others_collude < seen[1].cost().epsilon_if_others_collude
    assert result.asked["uneven"] == seen[1].statement()


class Greedy(Asker):
    def __init__(self, ask):
        self.ask = ask

    def fit_queries(self, oracle):
        self.ask(oracle)


@pytest.mark.parametrize(
    ("learners", "options", "said"),
    [
        (None, {"epsilon": None}, "mine: .*give epsilon"),
        (None, {"design": "plain"}, "leave out design"),
        (None, {"rados": 5, "norm_bound": 1}, "leave out design, rados, norm bound"),
        (None, {"split": "exact"}, "leave out split = exact"),
        (None, {"epsilon": 0}, "make it positive"),
        (None, {"delta": 1}, "0 to below 1"),
        (None, {"delta": -1}, "0 to below 1"),
        (None, {"rounds": 2}, "'mine' has no rounds"),
        ("naive-bayes", {"rounds": 2}, "'naive-bayes' has no rounds"),
        ("mean-variance", {"rounds": 2}, "'mean-variance' has no rounds"),
        ("mean-variance,naive-bayes", {"design": "plain"}, "plain takes no epsilon"),
        ("mean-variance,naive-bayes", {"design": "gaussian", "delta": 0}, "between 0 and 1"),
        ("naive-bays", {}, "did you mean 'naive-bayes'"),
        ({"mine": Greedy(lambda oracle: oracle.moments())}, {"delta": 0}, "'mine' failed on fold 1.*Gaussian noise"),
        ({"mine": Greedy(lambda oracle: oracle.statistic(LADDER, tolerance=1e-4))}, {}, "'mine' failed.*rows would"),
        ({"mine": Greedy(lambda oracle: oracle.statistic((Flag("membr"),)))}, {}, "'mine' failed.*'member'"),
        (
            {"mine": Greedy(lambda oracle: [oracle.statistic(LADDER, part=HALF) for _ in range(3)])},
            {},
            "'mine' failed.*add up",
        ),
    ],
)
def test_what_cannot_be_asked_is_refused_with_what_would_work(table, learners, options, said):
    with pytest.raises(RadofedError, match=said) as refused:
        asked(table, estimators=learners, **options)
    assert refused.value.exit_code in (4, 6)


def test_a_plan_is_answered_once(table):
    random = np.random.default_rng(3)
    features = random.integers(-(1 << 30), 1 << 30, (40, 4)).astype(np.int32)
    features[:, 3] = 1 << 30
    records = Records(
        features,
        random.choice([-1, 1], 40).astype(np.int8),
        np.ones(40, dtype=np.bool_),
    )
    names = ("a", "b", "c")
    federation = SimulatedFederation(LocalHosts(records, 5, names), names, 5, None)
    parts = np.array_split(np.arange(40), 3)
    source, other = (SimulatedSource(federation, parts, 1, name) for name in ("mine", "other"))
    request = StatisticRequest(schema=SCHEMA, predicates=(LabelIs(positive=True),), epsilon=Fraction(1))
    plan, again = source.plan(request), source.plan(request)
    assert plan.query_id != again.query_id
    answer = source.answer(plan)
    assert sum(answer.party_rows.values()) == source.rows == 40
    assert list(answer.party_rows) == list(names)
    for refused in (plan, other.plan(request)):
        with pytest.raises(ConfigurationError, match="plan the request again"):
            source.answer(refused)
    source.answer(again)
    assert source.seconds > 0


@pytest.mark.parametrize(("neighbours", "expected"), [(None, 20), ("30", 30), ("complete", 0)])
def test_encryption_changes_no_answer_of_many_parties(neighbours, expected):
    """45 of them, whose masks cancel in the whole sum whichever share one."""
    names = tuple(f"p{place:02}" for place in range(45))
    features = np.full((90, 4), 1 << 30, dtype=np.int32)
    records = Records(features, np.ones(90, dtype=np.int8), np.ones(90, dtype=np.bool_))
    parts, hosts = np.array_split(np.arange(90), 45), LocalHosts(records, 5, names)
    request = StatisticRequest(schema=SCHEMA, predicates=(LabelIs(positive=True),), epsilon=Fraction(1))
    values = []
    for secret in (None, secret_key()):
        federation = SimulatedFederation(hosts, names, 5, secret, mask_neighbours=neighbours)
        planned = federation.plan(None, request, parts, 1, "one")
        assert planned.plan.query.mask_neighbours == expected
        values.append(federation.ask(planned).tolist())
    assert values[0] == values[1]


def test_a_budget_is_checked():
    for epsilon, delta in ((0, 0), (1, 1), (1, -1)):
        with pytest.raises(ConfigurationError, match=r"epsilon|delta"):
            Budget(Fraction(epsilon), Fraction(delta))


# Learners of dpcore.


@pytest.mark.parametrize("name", ["naive-bayes", "decision-stump", "decision-list"])
def test_named_learners_ask_and_learn(table, name):
    result, _ = asked(table, estimators=name, epsilon=50, folds=2)
    mine, *_, majority = result.summaries
    assert mine.sees == "answers"
    assert mine.test_error_mean < majority.test_error_mean + 0.05
    assert 0 < result.asked[name].epsilon_if_others_collude <= 50
    assert figures(result) == figures(asked(table, estimators=name, epsilon=50, folds=2)[0])


@pytest.mark.parametrize("name", ["logistic-gd", "newton"])
def test_rounds_go_to_learners_that_have_them(table, name):
    result, _ = asked(table, estimators=name, epsilon=50, rounds=3, folds=2)
    assert "composition of 3 releases" in result.asked[name].assumptions[0]
    assert result.asked[name].epsilon_if_others_collude <= 50
    with pytest.raises(ConfigurationError, match="rounds is 0"):
        asked(table, estimators=name, rounds=0)


X0, _, MEMBER = SCHEMA.features
SMALL = replace(SCHEMA, features=(X0, MEMBER, CategoryFeature(name="kind", values=("a", "b", "c"))))
NEEDED = {
    "conjunction": {"require_rows": False},
    "point": {"feature": "kind", "require_rows": False},
    "threshold": {"feature": "x0", "require_rows": False},
    "kearns-list": {"require_rows": False},
}


@pytest.mark.variants(4)
@pytest.mark.parametrize("name", [name for name in BY_QUERIES if name not in EVENT_TIMES])
def test_every_learner_that_asks_runs(table, name):
    options = NEEDED.get(name)
    given = {"schema": SMALL, "epsilon": 100, "parties": 3, "folds": 2, "options": options}
    result, _ = asked(table, estimators=name, **given)
    mine = result.summaries[0]
    assert (mine.learner, mine.sees) == (name, "answers")
    assert list(result.asked) == [name]
    # Those that look at no real feature do little better than the larger class, which is wrong on less than half.
    assert mine.test_error_mean < (0.6 if name in ("conjunction", "decision-list", "kearns-list", "point") else 0.35)


class Promising(Asker):
    """Guarantees something in every other fold, in a text."""

    folds = itertools.count()

    def fit_queries(self, oracle):
        self.guarantee_ = None if next(self.folds) % 2 else "it errs on at most 0.5 of new rows"
        return super().fit_queries(oracle)


def test_what_estimators_guarantee_is_shown_for_people_and_programs(table):
    options = {"feature": "kind", "require_rows": False}
    chosen = {"point": make_estimator("point", **options), "mine": Promising()}
    result, _ = asked(table, estimators=chosen, schema=SMALL, epsilon=100, folds=2)
    found = result.to_dict()["guarantees"]
    assert list(found) == ["point", "mine"]
    said = "with probability 0.95 the error on new rows is less than 0.1, if there are at least "
    assert [text.startswith(said) for text in found["point"]] == [True, True]
    assert found["mine"] == ["it errs on at most 0.5 of new rows", None]
    text = "\n".join(result.sentences())
    assert f"Guaranteed by the estimators:\npoint, in 2 of 2 folds: {said}" in text
    assert "\nmine, in 1 of 2 folds: it errs on at most 0.5 of new rows.\n" in text
    assert "\nmine, in 1 of 2 folds: no guarantee.\n" in text


def test_without_a_guarantee_nothing_is_said_of_one(table):
    result, _ = asked(table, estimators="naive-bayes", folds=2)
    assert result.to_dict()["guarantees"] == {}
    assert not any("Guaranteed" in line for line in result.sentences())


@pytest.mark.more
def test_options_are_the_learner_s_parameters(table):
    given = {"schema": SMALL, "epsilon": 100, "parties": 3, "folds": 2}
    options = {"feature": "x0", "require_rows": False, "cuts": 4, "direction": "below"}
    named, _ = asked(table, estimators="threshold", options=options, **given)
    mine, _ = asked(table, estimators={"threshold": make_estimator("threshold", **options)}, **given)
    assert figures(named) == figures(mine)
    assert figures(named) != figures(asked(table, estimators="threshold", options=NEEDED["threshold"], **given)[0])


@pytest.mark.parametrize("name", ["radoboost", "adaboost"])
def test_learners_that_do_not_ask_have_options_too(table, name):
    given = {"estimators": name, "design": "plain", "epsilon": None, "folds": 2, "seed": 1}
    once, _ = asked(table, options={"n_rounds": 1}, **given)
    assert figures(once) != figures(asked(table, **given)[0])


@pytest.mark.parametrize(
    ("learners", "options", "said"),
    [
        ("point", {}, "point needs the option feature"),
        ("point", {"option": {"feature": "kind", "alhpa": 0.2}}, "no option 'alhpa'.*'alpha'"),
        ("mean-variance", {"option": {"feature": "kind"}}, "no option 'feature'"),
        ("adaboost", {"option": {"feature": "kind"}}, "no option 'feature'"),
        ("newton", {"option": {"name": "newton"}}, "no option 'name'"),
        ("point,threshold", {"option": {"feature": "kind"}}, "options are for one estimator, and 2 are named"),
        (None, {"option": {"rounds": 2}}, "options are for a named estimator"),
        ("newton", {"option": {"rounds": 2}, "rounds": 3}, "rounds is given twice"),
    ],
)
def test_options_that_cannot_be_used_are_refused(table, learners, options, said):
    option = options.get("option")
    rest = {name: value for name, value in options.items() if name != "option"}
    with pytest.raises(ConfigurationError, match=said):
        asked(table, estimators=learners, options=option, **rest)


def test_the_command_takes_options(table, tmp_path, capsys):
    schema = tmp_path / "small.toml"
    schema.write_text(SMALL.to_toml(), encoding="utf-8")
    arguments = ["simulate", "--data", str(table), "--schema", str(schema), "--parties", "3", "--folds", "2"]
    arguments += ["--workers", "0", "--epsilon", "100", "--format", "json", "--estimator"]
    options = ["--option", "feature=kind", "--option", "require-rows=false"]
    assert run([*arguments, "point", *options]) == 0
    assert json.loads(capsys.readouterr().out)["data"]["results"]["point"]["sees"] == "answers"
    assert run([*arguments, "point,newton", *options]) == 4
    assert "options are for one estimator" in json.loads(capsys.readouterr().out)["error"]["message"]


def test_the_command_measures_learners_that_ask(table, tmp_path, capsys):
    rows = tmp_path / "rows.parquet"
    arguments = ["simulate", "--data", str(table), "--label", "y", "--positive", "in", "--parties", "3", "--folds", "2"]
    arguments += ["--workers", "0", "--estimator", "naive-bayes", "--epsilon", "1", "--delta", "1e-6"]
    assert run([*arguments, "--per-fold", str(rows), "--format", "json"]) == 0
    captured = capsys.readouterr()
    data = json.loads(captured.out)["data"]
    assert list(data["results"]) == ["naive-bayes", "logistic", "majority"]
    assert data["results"]["naive-bayes"]["sees"] == "answers"
    assert data["asked"]["naive-bayes"]["epsilon_if_others_collude"] <= 1
    assert "estimators query" in captured.err
    assert pq.read_table(rows).to_pydict()["sees"] == ["answers", "rows", "labels"] * 2
    assert run([*arguments[:-4], "--format", "json"]) == 4
    assert "give epsilon" in json.loads(capsys.readouterr().out)["error"]["message"]
