"""Learners that ask, over real processes: statistics, rounds, evaluation, budgets that end."""

import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import radofed
from dpcore.records.schema import Schema
from learner.config import LearnerConfig
from learner.federation import Federation
from learner.journal import SessionSource
from learner.release import Release
from learner.session import Session
from parties.data.dataset import load
from radofed.cli.entry_point import run
from radofed.node_config import PolicyChoices
from tests.end_to_end.test_main_job import SCHEMA, table
from tests.federation.processes import ProcessFederation, rado
from tests.radobase.scraping import scrape
from tests.waiting import wait_until
from wire.envelopes import load_public_key

ROWS = {"a": 900, "b": 1300, "c": 700}
ALLOWING = PolicyChoices(designs=("statistic", "local-statistic", "gradient", "moments"), epsilon="120", delta="1e-4")
OLD, ILL = '(x["age"] >= 65536) & (y == 1)', "y == 1"


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    root = tmp_path_factory.mktemp("asking")
    parties = {name: table(rows, seed) for seed, (name, rows) in enumerate(ROWS.items())}
    with ProcessFederation(root, parties=parties, schema=SCHEMA, policy=ALLOWING, rows_at_least=ROWS) as federation:
        for name in ("a", "coordinator"):
            with federation.member(name).config.open("a") as config:
                config.write('\n[watch]\nsocket = "watch.sock"\n')
        # With 3072 bits, the same commands run in tests/docs/test_examples.py.
        federation.serve("--bits", "2048")
        yield federation


@pytest.fixture(scope="module")
def rows(federation):
    """All parties' rows as columns, which only a test may see."""
    text = [
        line.split(",") for name in ROWS for line in (federation.directory(name) / "data.csv").read_text().split()[1:]
    ]
    return {"age": np.array([float(row[0]) for row in text]), "ill": np.array([row[4] == "yes" for row in text])}


def spent(federation, name: str = "a") -> float:
    shown = rado("ledger", "show", "--config", str(federation.member(name).config))["data"]
    return next((scope["spent"]["epsilon"] for scope in shown["scopes"] if scope["scope"] == "record"), 0.0)


@pytest.mark.parametrize("delta", ["0", "1e-6"])
def test_statistics(federation, rows, delta):
    before = spent(federation)
    # Few predicates take least noise from Laplace's distribution, many from Gauss's.
    more = () if delta == "0" else tuple(f'x["dose"] >= {tenths / 10}' for tenths in range(30))
    found = rado(
        "learner", "statistic", OLD, ILL, *more, *federation.asking, "--epsilon", "4", "--delta", delta,
        "--tolerance", "0.2", "--confidence", "0.999999",
    )["data"]  # fmt: skip
    m = sum(ROWS.values())
    true = [np.mean((rows["age"] >= 65536) & rows["ill"]), np.mean(rows["ill"])]
    estimates = [entry["estimate"] for entry in found["estimates"]][:2]
    # They are sums of whole rows, with noise that is whole where it is Laplace's alone.
    if delta == "0":
        assert np.allclose(np.array(estimates) * m, np.rint(np.array(estimates) * m))
    assert np.abs(np.subtract(estimates, true)).max() <= found["noise"] < 0.03
    assert found["rows"] == m
    assert found["tolerance"] == pytest.approx(found["noise"] + found["sampling"])
    privacy = found["privacy"]
    assert privacy["unit"] == "one record"
    assert privacy["scope"] == "record"
    assert 0 < privacy["epsilon"] <= privacy["epsilon_if_others_collude"] <= 4
    assert (privacy["delta"] == 0) == (delta == "0")
    assert spent(federation) > before


def test_a_statistic_that_earlier_answers_may_have_chosen_has_a_tolerance_for_that(federation):
    """Answers on the learner's disk, of any command, are earlier ones."""
    age = 'x["age"] >= 70000'
    found = rado("learner", "statistic", age, *federation.asking, "--epsilon", "4", "--adaptive", "9")["data"]
    assert "for all of up to 9 questions together" in found["premise"]
    plain = math.sqrt(math.log(2 / (0.05 / 18)) / (2 * sum(ROWS.values())))
    assert plain < found["sampling"] < 0.5


@pytest.mark.more
def test_local_answers_cost_their_epsilon_and_repeat(federation, rows):
    before = spent(federation)
    ask = ("learner", "statistic", ILL, *federation.asking, "--epsilon", "2", "--delta", "0", "--local")
    found = rado(*ask)["data"]
    assert abs(found["estimates"][0]["estimate"] - np.mean(rows["ill"])) <= found["noise"] < 0.05
    privacy = found["privacy"]
    assert (privacy["epsilon"], privacy["epsilon_if_others_collude"], privacy["delta"]) == (2, 2, 0)
    assert "local" in privacy["assumptions"][1]
    assert spent(federation) == pytest.approx(before + 2, rel=0.01)
    assert rado(*ask, "--ask-again")["data"]["estimates"] == found["estimates"]


class Metrics:
    """What a query changes in the metrics of a party and of the coordinator."""

    def __init__(self, federation):
        self._places = {name: federation.directory(name) / "watch.sock" for name in ("a", "coordinator")}
        self._before = wait_until(self._settled, what="the end of earlier queries")

    def _settled(self):
        """A scrape of both, None while a query is under way at one of them."""
        found = {name: scrape(place) for name, place in self._places.items()}
        party, coordinator = found.values()
        accepted, ended = (party("rado_attempts_total", step=step) for step in ("accepted", "ended"))
        finished = coordinator("rado_queries_finished_total", outcome="complete")
        return found if accepted == ended == finished == coordinator("rado_queries_submitted_total") else None

    def check_one_statistic(self):
        before = self._before["a"]("rado_attempts_total", step="ended")
        wait_until(lambda: scrape(self._places["a"])("rado_attempts_total", step="ended") > before, what="the end")
        now = wait_until(self._settled, what="the end at both")

        def grown(node, name, **labels):
            return now[node](name, **labels) - self._before[node](name, **labels)

        for step in ("accepted", "cohort", "charged", "uploaded", "ended"):
            assert grown("a", "rado_attempts_total", step=step) == 1
        assert grown("a", "rado_ledger_remaining_ratio", scope="record") < 0
        assert grown("coordinator", "rado_queries_submitted_total") == 1
        # Three parties upload; this is one of them.
        assert grown("coordinator", "rado_received_bytes_total") > grown("a", "rado_sent_bytes_total") > 1000
        assert grown("coordinator", "rado_sent_bytes_total") > grown("a", "rado_received_bytes_total") > 1000
        assert grown("a", "rado_attempts_lost_total") == grown("coordinator", "rado_attempts_lost_total") == 0


def test_a_statistic_is_one_saved_release(federation):
    metrics = Metrics(federation)
    with Session(LearnerConfig.load(federation.learner.config)) as session:
        schema = Schema.from_toml(SCHEMA)
        asked = Federation(SessionSource(session), schema)
        found = asked.statistic([ILL, '~x["smoker"]'], epsilon=Fraction(4), confidence=0.9)
        (release,) = asked.answers
        where = session.release_directory(release.query_id)
    metrics.check_one_statistic()
    assert found.confidence == 0.9
    loaded = Release.load(where)
    loaded.verify(load_public_key(federation.learner.directory / "federation.pub"))
    assert loaded.contents == "2 statistics"
    saved = json.loads((where / "release.json").read_text())
    assert saved["statistic"]["predicates"] == [ILL, '~x["smoker"]']
    refused = rado("learner", "train", str(where), "-o", str(federation.root / "no.json"), code=4)
    assert "a single answer to an estimator that sends queries" in refused["error"]["message"]


def test_rounds_go_on_where_they_were_interrupted(federation, capsys):
    """A run that is repeated reads its answers: nothing is asked or charged twice, and the model is the same."""
    model, held_out = federation.root / "newton.json", federation.root / "held_out.csv"
    held_out.write_text(table(500, 99))
    options = ("--estimator", "newton", *federation.asking, "--epsilon", "6", "--rounds", "3", "-o", str(model))
    asked_before = federation.queries()
    made = rado("learner", "train", *options)["data"]
    assert made["answers"] == 3
    assert federation.queries() == asked_before + 3
    assert made["privacy"]["epsilon_if_others_collude"] <= 6
    assert made["privacy"]["epsilon"] < made["privacy"]["epsilon_if_others_collude"]
    assert "composition of 3 releases" in made["privacy"]["assumptions"][0]
    error = rado("learner", "predict", str(model), str(held_out))["data"]["error_rate"]
    first = json.loads(model.read_text())
    paid = spent(federation)
    # As if it had been killed after the second round: the third is sent again, the others are not.
    journal = Path(f"{model}.journal")
    content = json.loads(journal.read_text())
    model.unlink()
    assert run(["learner", "train", *options]) == 0
    again = json.loads(model.read_text())
    assert (again["release_digest"], again["theta"]) == (first["release_digest"], first["theta"])
    assert federation.queries() == asked_before + 3
    journal.write_text(json.dumps({**content, "rounds": content["rounds"][:2]}))
    model.unlink()
    # The third question has an answer that the journal lacks: it is charged again only with a word.
    assert run(["learner", "train", *options]) == 4
    assert federation.queries() == asked_before + 3
    rado("learner", "train", *options, "--ask-again")
    assert federation.queries() == asked_before + 4
    assert spent(federation) > paid
    assert json.loads(journal.read_text())["rounds"][:2] == content["rounds"][:2]
    assert error < 0.4
    model.unlink()
    assert run(["learner", "train", *options[:-4], "--rounds", "4", "-o", str(model)]) == 4
    assert "another run" in capsys.readouterr().err


@pytest.mark.more
def test_curves_are_asked_for_and_go_on_where_they_were_interrupted(federation):
    """The terms follow the first answer, so a run that is repeated asks for the same ones."""
    model, held_out = federation.root / "additive.json", federation.root / "held_out.csv"
    held_out.write_text(table(500, 99))
    options = ("--estimator", "additive", *federation.asking, "--epsilon", "4", "--rounds", "3", "-o", str(model))
    asked_before = federation.queries()
    made = rado("learner", "train", *options)["data"]
    assert (made["answers"], made["privacy"]["scope"]) == (3, "record")
    assert made["privacy"]["epsilon_if_others_collude"] <= 4
    first = json.loads(model.read_text())
    functions = [term["function"] for term in first["feature_map"]]
    assert {"column", "hat", "product"} <= set(functions)
    assert rado("learner", "predict", str(model), str(held_out))["data"]["error_rate"] < 0.4
    shown = rado("ledger", "history", "--config", str(federation.member("a").config))["data"]["queries"]
    assert sum("of records mapped to" in json.dumps(query) for query in shown) == 2
    journal = Path(f"{model}.journal")
    content = json.loads(journal.read_text())
    journal.write_text(json.dumps({**content, "rounds": content["rounds"][:2]}))
    model.unlink()
    # The third question has an answer that the journal lacks: it is charged again only with a word.
    assert run(["learner", "train", *options]) == 4
    assert federation.queries() == asked_before + 3
    rado("learner", "train", *options, "--ask-again")
    assert federation.queries() == asked_before + 4
    assert json.loads(model.read_text())["feature_map"] == first["feature_map"]


@pytest.mark.more
def test_evaluation(federation, rows):
    model = federation.root / "bayes.json"
    rado("learner", "train", "--estimator", "naive-bayes", *federation.asking, "--epsilon", "6", "-o", str(model))
    options = ("--epsilon", "4", "--confidence", "0.99999")
    answered = rado("learner", "evaluate", str(model), "--config", str(federation.learner.config), *options)
    found = answered["data"]
    schema = Schema.from_toml(SCHEMA)
    wrong = 0
    theta = np.array([value for _, value in json.loads(model.read_text())["theta"]])
    for name in ROWS:
        records = load(federation.directory(name) / "data.csv", schema).records
        wrong += int((np.where(records.features * 2.0**-30 @ theta > 0, 1, -1) != records.labels).sum())
    lower, upper = found["error"]["on_rows"]
    assert lower <= wrong / sum(ROWS.values()) <= upper < 0.5
    assert found["privacy"]["epsilon_if_others_collude"] <= 4


@pytest.mark.more
def test_histograms_are_asked_once_and_printed_again(federation, rows, capsys):
    """One release has the shares of all columns and their quantiles; printing either again asks nothing."""
    asked_before, options = federation.queries(), (*federation.asking, "--epsilon", "4", "--confidence", "0.99999")
    planned = rado("learner", "histogram", "age", "dose", *options, "--plan")["data"]["plan"]
    assert planned["noise_share"] == planned["noise_rows"] / sum(ROWS.values())
    assert federation.queries() == asked_before
    found = rado("learner", "histogram", "age", "dose", *options, "--edges", "age=40000:80000:4")["data"]
    assert federation.queries() == asked_before + 1
    age, dose = found["columns"]
    assert [part["lower"] for part in age["parts"] if not part["is_point"]][1:] == [4e4, 5e4, 6e4, 7e4, 8e4]
    assert len(dose["parts"]) > 32
    for part in age["parts"]:
        inside = (rows["age"] >= part["lower"]) & (rows["age"] < part["upper"])
        true = np.mean(rows["age"] == part["lower"]) if part["is_point"] else np.mean(inside)
        assert part["on_rows"][0] <= true <= part["on_rows"][1] < part["on_rows"][0] + 0.1
        assert part["on_distribution"][0] <= part["estimate"] <= part["on_distribution"][1]
    assert (found["rows"], found["confidence"]) == (sum(ROWS.values()), 0.99999)
    assert 0 < found["privacy"]["epsilon_if_others_collude"] <= 4
    saved = ("--release", found["release"])
    again = rado("learner", "histogram", *saved, "--confidence", "0.99999")["data"]
    assert again["columns"] == found["columns"]
    shown = rado("learner", "quantiles", *saved, "--levels", "0.1,0.5", "--confidence", "0.99999")["data"]
    for quantile in shown["columns"][0]["quantiles"]:
        true = np.quantile(rows["age"], quantile["level"], method="inverted_cdf")
        assert quantile["on_rows"][0] <= true <= quantile["on_rows"][1]
        assert quantile["on_distribution"][0] <= quantile["on_rows"][0]
    assert run(["learner", "quantiles", *saved]) == 0
    printed = capsys.readouterr().out
    assert "for new rows" in printed
    assert "hold together with probability at least 95 %" in printed
    assert run(["learner", "quantiles", *saved, "--epsilon", "1"]) == 4
    assert federation.queries() == asked_before + 1


INQUIRIES = {
    "describe": ("age", "ward", "--by", ILL),
    "crosstab": (ILL, "age", "--edges", "age=40000,60000"),
    "compare": ("age", "--by", ILL),
    "correlate": ("age", "dose"),
}


@pytest.mark.parametrize("name", INQUIRIES)
def test_inquiries_are_planned_then_asked_once_and_printed_again(federation, rows, capsys, tmp_path, name):
    """One release each, with its statement, shown again at no cost."""
    asked_before, options = federation.queries(), (*federation.asking, "--epsilon", "4", "--confidence", "0.99999")
    words = INQUIRIES[name]
    planned = rado("learner", name, *words, *options, "--plan")["data"]["plan"]
    assert 0 < planned["epsilon"] <= planned["epsilon_if_others_collude"] <= 4
    assert any(each["upper"] is not None for each in planned["expected"])
    assert federation.queries() == asked_before
    found = rado("learner", name, *words, *options)["data"]
    assert federation.queries() == asked_before + 1
    assert 0 < found["privacy"]["epsilon_if_others_collude"] <= 4
    again = rado("learner", name, "--release", found["release"])["data"]
    assert again == found
    drawn = rado("learner", name, "--release", found["release"], "--picture", str(tmp_path / f"{name}.svg"))["data"]
    assert drawn == {**found, "picture": str(tmp_path / f"{name}.svg")}
    assert "<circle" in (tmp_path / f"{name}.svg").read_text()
    assert rado("learner", name, *words, *options, "--reuse")["data"] == found
    assert run(["learner", name, "--release", found["release"]]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "-differentially private for one record" in printed
    assert "over the noise and the sample" in printed
    means = {each["group"]: each for each in found["figures"] if each["quantity"] == "mean"}
    true = {value: rows["age"][rows["ill"] == value].mean() for value in (True, False)}
    for value, mean in true.items() if means else ():
        group = means[ILL if value else f"not {ILL}"]
        assert group["lower"] <= mean <= group["upper"] < group["lower"] + 20_000
    other = "crosstab" if name == "describe" else "describe"
    assert run(["learner", other, "--release", found["release"]]) == 4
    assert f"answers `rado learner {name}`" in capsys.readouterr().err
    assert federation.queries() == asked_before + 1


REFUSED = [
    (("describe", "agee", "--epsilon", "1"), "did you mean 'age'"),
    (("describe", "--epsilon", "0.001"), "nothing was asked"),
    (("describe", "--by", "wward", "--epsilon", "1"), "did you mean 'ward'"),
    (("describe", "--epsilon", "1", "--release", "x"), "leave --schema out"),
    (("describe", "--epsilon", "1", "--picture", "x.png"), "ends in .svg"),
    (("describe", "--epsilon", "1", "--picture", "x.svg", "--plan"), "leave --picture out"),
    (("crosstab", "age", "--epsilon", "1"), "give two"),
    (("crosstab", "ward", "age", "--epsilon", "0.01"), "nothing was asked"),
    (("compare", "age", "--epsilon", "1"), "--by"),
    (("correlate", "ward", "age", "--epsilon", "1"), "is a category"),
    (("correlate", "age", "dose", "--epsilon", "1", "--delta", "0"), "no delta of 0"),
    (("histogram", "--epsilon", "1"), "there is no column"),
    (("histogram", "agee", "--epsilon", "1"), "did you mean 'age'"),
    (("quantiles", "ward", "--epsilon", "1"), "is a category feature"),
    (("histogram", "age", "--epsilon", "1", "--cells", "0"), "give 1 to"),
    (("histogram", "age", "--epsilon", "1", "--edges", "age=9,3"), "ascending"),
    (("histogram", "age", "--epsilon", "1", "--edges", "age=-5"), "beyond the schema's bounds"),
    (("histogram", "age", "--epsilon", "1", "--edges", "age=3:5"), "NAME=FROM:TO:CELLS"),
    (("histogram", "age", "--epsilon", "1", "--edges", "age=3", "--edges", "age=4"), "given twice"),
    (("histogram", "age"), "give the --epsilon"),
    (("histogram", "age", "--epsilon", "1", "--confidence", "1"), "between 0 and 1"),
    (("quantiles", "age", "--epsilon", "1", "--levels", "0.5,1"), "not between 0 and 1"),
    (("quantiles", "age", "--epsilon", "1", "--levels", "half"), "write numbers"),
    (("quantiles", "age", "--epsilon", "1", "--release", "x"), "leave columns out"),
    (("statistic", 'x["wage"] >= 3', "--epsilon", "1"), "no feature 'wage'"),
    (("statistic", 'x["age"] == 3', "--epsilon", "1"), "age"),
    (("statistic", 'x["ward"] == "east"', "--epsilon", "1"), "lists no value 'east'"),
    (("statistic", "y == 1 &", "--epsilon", "1"), "^"),
    (("statistic", ILL), "give the --epsilon"),
    (("statistic", ILL, "--epsilon", "1", "--tolerance", "1"), "between 0 and 1"),
    (("statistic", ILL, "--epsilon", "1", "--confidence", "0"), "between 0 and 1"),
    (("statistic", ILL, "--epsilon", "1", "--noise-rate", "0.5"), "[0, 1/2)"),
    (("statistic", ILL, ILL, "--epsilon", "1"), "are the same"),
    (("statistic", ILL, "--epsilon", "-1"), "positive"),
    (("statistic", ILL, "--epsilon", "1", "--tolerance", "1e-5"), "rows would"),
    (("statistic", 'x["age"] >= 3', "--epsilon", "1", "--adaptive", "1"), "at least 2"),
    (("statistic", 'x["age"] >= 3', "--epsilon", "0.01", "--adaptive", "1000"), "too few for 1000 adaptive questions"),
    (("train", "--estimator", "newt", "-o", "x.json"), "did you mean 'newton'"),
    (("train", "--estimator", "logistic-gd", "-o", "x.json"), "give the --epsilon"),
    (("train", "--estimator", "logistic-gd", "-o", "x.json", "--epsilon", "1", "--delta", "0"), "no delta of 0"),
    (("train", "--estimator", "logistic-gd", "-o", "x.json", "--epsilon", "1", "--option", "clip=0"), "clip"),
]


@pytest.mark.more
def test_the_public_api_asks_organisations_as_it_asks_a_simulation(federation, rows, monkeypatch):
    """Under one import, in the learner's directory: statistics, a training that goes on, and its evaluation."""
    monkeypatch.chdir(federation.learner.directory)
    before = spent(federation)
    with pytest.raises(radofed.ConfigurationError, match=r"'purpse'.*'purpose'"):
        radofed.connect("learner.toml", purpse="study")
    schema = federation.root / "schema.toml"
    with radofed.connect("learner.toml", schema=schema, purpose="study", progress=False) as asked:
        asked.plan("describe", ["age"], epsilon=1)
        planned = asked.plan("train", "newton", epsilon=2, rounds=2, hold_back=0.25)
        assert planned.statement.epsilon_if_others_collude == pytest.approx(2, abs=1e-3)
        assert spent(federation) == before
        found = asked.statistic({"ill": ILL}, epsilon=0.5)
        assert abs(found["ill"] - np.mean(rows["ill"])) <= found.noise
        assert spent(federation) > before
        model = asked.train("newton", epsilon=2, rounds=2, hold_back=0.25, journal="api.journal")
        after = federation.queries()
        again = asked.train("newton", epsilon=2, rounds=2, hold_back=0.25, journal="api.journal")
        assert again.digest == model.digest
        assert federation.queries() == after
        assert "hold back" in model.evaluate(asked, epsilon=1).sentences()[0]
    with radofed.connect("learner.toml", schema=schema, reuse=True, purpose="study", progress=False) as asked:
        assert asked.statistic({"other name": ILL}, epsilon=0.5)["other name"] == found["ill"]
        assert federation.queries() == after + 2


def test_impossible_queries_are_refused_before_anything_is_sent(federation, tmp_path, capsys):
    before = federation.queries()
    for arguments, says in REFUSED:
        given = [str(tmp_path / "x.json") if text == "x.json" else text for text in arguments]
        code = run(["learner", *given, *federation.asking, "--format", "json"])
        printed = capsys.readouterr().out
        assert code in (4, 6), printed
        assert says in json.loads(printed)["error"]["message"]
    assert federation.queries() == before


@pytest.mark.more
def test_privacy_that_ends_in_the_middle_keeps_the_last_iterate(federation, capsys):
    """Party c's policy admits no more than a round or two; the learner keeps what it has and says what it cost.

    It is lowered once the training runs: otherwise nothing of it would be asked.
    """
    model = federation.root / "stopped.json"
    training = ("train", "--estimator", "logistic-gd", *federation.asking, "--epsilon", "2", "--rounds", "6")
    training = (*training, "--cohort-min", "3", "-o", str(model))
    rado("learner", *training)
    policy = federation.directory("c") / "policy.toml"
    text = policy.read_text()
    low, high = 0.0, 120.0
    for _ in range(20):
        # The limit that leaves room for one answer of about epsilon 1, which is more than one round and less than six.
        limit = (low + high) / 2
        policy.write_text(text.replace('epsilon = "120"', f'epsilon = "{limit:.4f}"'))
        shown = rado("ledger", "show", "--config", str(federation.member("c").config))["data"]
        (room,) = (each["remaining_gaussian_epsilon"] for each in shown["scopes"] if each["scope"] == "record")
        low, high = (low, limit) if room > 1 else (limit, high)
    federation.stop("c")
    federation.start("c")
    # A new training asks nothing; one that was interrupted after its first round goes on.
    model.unlink()
    paid, journal = spent(federation), Path(f"{model}.journal")
    content = json.loads(journal.read_text())
    journal.unlink()
    assert run(["learner", *training, "--ask-again"]) == 6
    assert "Asked first about the whole training at epsilon 2, 1 of 3 would refuse" in capsys.readouterr().err
    assert spent(federation) == paid
    journal.write_text(json.dumps({**content, "rounds": content["rounds"][:1]}))
    made = rado("learner", *training, "--ask-again")["data"]
    assert 1 <= made["answers"] < 6
    said = "answer was" if made["answers"] == 1 else "answers were"
    assert f"{made['answers']} {said} released" in made["warning"]
    assert made["privacy"]["epsilon_if_others_collude"] < 2
    assert model.exists()
