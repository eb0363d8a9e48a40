"""`rado learner` with a coordinator: what is saved, sent, followed, fetched, and never overwritten."""

import json
import re
from fractions import Fraction

import numpy as np
import pytest
import typer

from learner.model import Model
from learner.progress import ASK_WHETHER_READY
from learner.session import Session
from radofed.cli.commands import app
from radofed.cli.entry_point import run
from tests.federation.learner import SCHEMA
from tests.federation.setting import ROWS
from tests.learner.random_maps import STATEMENT
from wire.errors import Code
from wire.query import Query
from wire.status import PartyProgress, PartyState, Phase


class Learner:
    """Runs `rado learner` with a setting's configuration."""

    def __init__(self, setting, capsys, tmp_path):
        self.setting, self.capsys, self.directory = setting, capsys, tmp_path
        (tmp_path / "schema.toml").write_text(SCHEMA.to_toml())

    def __call__(self, *arguments, config=True):
        """Exit code, standard output, standard error."""
        configured = ["--config", str(self.setting.config_file)] if config else []
        code = run(["learner", *arguments, *configured])
        captured = self.capsys.readouterr()
        return code, captured.out, captured.err

    def query(self, *more):
        schema = str(self.directory / "schema.toml")
        return self(
            "query",
            "--schema",
            schema,
            "--design",
            "dp-feat",
            "--rados",
            "40",
            "--sensitive",
            "smoker",
            "--max-rows",
            "10000",
            *more,
        )

    def json(self, *arguments):
        code, out, _ = self(*arguments, "--format", "json")
        assert out.count("\n") == 1
        return code, json.loads(out)

    @property
    def asked(self):
        with self.setting.session() as session:
            return [query_id.hex() for query_id in session.asked()]


@pytest.fixture
def learner(setting, capsys, tmp_path):
    return Learner(setting, capsys, tmp_path)


def test_a_query_returns_a_release(learner):
    code, out, err = learner.query()
    assert code == 0
    assert "40 rados over 600 rows of 3 parties" in out
    assert "It holds under " in out
    assert "uniformly random" not in out
    assert f"asked: query {learner.asked[0]}" in err


def test_a_query_that_was_never_acknowledged_is_listed_and_sent(setting, learner):
    setting.stub.fail["SubmitQuery"] = Code.QUERIES_TOO_MANY
    code, _, err = learner.query()
    (query_id,) = learner.asked
    again = f"rado learner send {query_id[:16]} --config {setting.config_file}"
    assert code == 1
    assert again in err
    code, out, err = learner("list")
    assert (code, out) == (0, "no queries\n")
    assert again in err
    assert learner.json("list")[1]["data"]["unsent"] == [query_id]
    del setting.stub.fail["SubmitQuery"]
    for _ in range(2):
        code, out, _ = learner("send", query_id[:6])
        assert code == 0
        assert f"rado learner fetch {query_id[:16]}" in out
    assert len(setting.stub.submitted) == 1
    code, out, err = learner("list")
    assert query_id[:16] in out
    assert err == ""
    assert learner.json("list")[1]["data"]["unsent"] == []
    code, out, _ = learner("fetch", query_id[:6])
    assert code == 0
    assert "40 rados over 600 rows" in out


def test_a_fetched_statistic_says_how_to_see_it_and_not_to_train_on_it(learner):
    schema = str(learner.directory / "schema.toml")
    assert learner("statistic", "y == 1", "--schema", schema, "--epsilon", "1")[0] == 0
    code, out, _ = learner("fetch", learner.asked[0][:16])
    assert code == 0
    assert "give the command that asked it again with --reuse" in out
    assert "train on it" not in out


def test_an_interrupted_query_continues_and_says_so(setting, learner, monkeypatch):
    def interrupted(*_arguments, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr(Session, "watch", interrupted)
    code, out, err = learner.query()
    (query_id,) = learner.asked
    assert (code, out) == (1, "")
    assert f"the query continues; follow it with: rado learner fetch {query_id[:16]} --config" in err
    assert "Traceback" not in err


def test_a_query_interrupted_before_it_was_saved_leaves_nothing_to_follow(learner, monkeypatch):
    def interrupted(*_arguments, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr(Session, "ask", interrupted)
    code, _, err = learner.query()
    assert code == 1
    assert "follow it" not in err
    assert learner.asked == []


@pytest.mark.more
def test_without_waiting_the_next_command_is_shown(setting, learner):
    code, out, _ = learner.query("--no-wait")
    assert code == 0
    assert out == f"follow it with: rado learner fetch {learner.asked[0][:16]} --config {setting.config_file}\n"


@pytest.mark.parametrize("timeout_s", ["0", "-5", "nan"])
def test_an_invalid_timeout_sends_nothing(setting, learner, timeout_s):
    code, _, err = learner.query("--timeout-s", timeout_s)
    assert code == 4
    assert re.search(r"timeout[_-]s", err)
    assert setting.stub.submitted == []


def test_a_saved_release_is_shown_without_the_coordinator(setting, learner):
    learner.query()
    (query_id,) = learner.asked
    for method in ("WatchQuery", "FetchTotal"):
        setting.stub.fail[method] = Code.QUERY_UNKNOWN
    code, out, _ = learner("fetch", query_id[:6])
    assert code == 0
    assert "40 rados over 600 rows" in out


def test_an_unknown_id(learner):
    code, _, err = learner("status", "abcdef")
    assert code == 4
    assert "no query of this learner's" in err


def test_text_of_the_coordinator_cannot_control_the_terminal(setting, learner):
    setting.stub.phases = [Phase.FAILED]
    setting.stub.code, setting.stub.detail = "COHORT_TOO_SMALL", "Silent: \x1b[2J\x07bo."
    code, _, err = learner.query()
    assert code == 6
    assert "\x1b" not in err
    assert "\x07" not in err
    assert r"Silent: \x1b[2J\x07bo." in err
    assert "\x1b" not in learner("list")[1]


@pytest.mark.parametrize("command", ["query", "statistic", "train"])
def test_a_quorum_wait_is_signed_into_the_query(setting, learner, command):
    wait = ("--quorum-wait", "30", "--timeout-s", "0.2")
    setting.stub.phases = [Phase.ANSWERING]
    shared = ("--schema", str(learner.directory / "schema.toml"), "--epsilon", "1", "--max-rows", "10000", *wait)
    model = str(learner.directory / "model.json")
    if command == "query":
        code, _, err = learner.query(*wait)
    elif command == "statistic":
        code, _, err = learner("statistic", "y == 1", *shared)
    else:
        code, _, err = learner("train", "--estimator", "newton", "--output", model, *shared)
    assert code == 3, err
    # A training first asks whether all of it would be accepted.
    *_, sent = setting.stub.submitted
    assert len(setting.stub.submitted) == (2 if command == "train" else 1)
    assert Query.from_bytes(sent.payload).quorum_wait_s == 30


@pytest.mark.parametrize("command", ["query", "statistic", "train", "histogram", "quantiles", "evaluate", "select"])
def test_a_purpose_is_signed_into_the_query(setting, learner, command):
    trained = learner.directory / "trained.json"
    Model(np.zeros(SCHEMA.d), SCHEMA, "mean-variance", bytes(32), STATEMENT).save(trained)
    setting.stub.phases = [Phase.ANSWERING]
    purpose = ("--purpose", "Study 17: \u00e9tude", "--timeout-s", "0.2")
    shared = ("--schema", str(learner.directory / "schema.toml"), "--epsilon", "1", "--max-rows", "10000", *purpose)
    model = str(learner.directory / "model.json")
    asked = {
        "query": lambda: learner.query(*purpose),
        "statistic": lambda: learner("statistic", "y == 1", *shared),
        "train": lambda: learner("train", "--estimator", "newton", "--output", model, *shared),
        "histogram": lambda: learner("histogram", "age", *shared),
        "select": lambda: learner("select", "y == 1", 'x["age"] >= 50', *shared),
        "quantiles": lambda: learner("quantiles", "age", *shared),
        "evaluate": lambda: learner("evaluate", str(trained), "--epsilon", "1", "--max-rows", "10000", *purpose),
    }
    code, _, err = asked[command]()
    assert code == 3, err
    # A training and an evaluation first ask whether all of it would be accepted.
    *_, sent = setting.stub.submitted
    assert len(setting.stub.submitted) == (2 if command in ("train", "evaluate") else 1)
    assert Query.from_bytes(sent.payload).purpose == "Study 17: \u00e9tude"
    assert learner.json("history")[1]["data"]["queries"][0]["purpose"] == "Study 17: \u00e9tude"
    assert 'purpose: "Study 17: \u00e9tude"' in " ".join(learner("history")[1].split())


@pytest.mark.parametrize("purpose", ["a\u202eb", ""])
@pytest.mark.parametrize("command", ["query", "statistic", "train"])
def test_a_purpose_that_cannot_be_shown_is_refused_before_anything_is_asked(setting, learner, command, purpose):
    """Also an empty one, such as "$STUDY" of a shell in which it is not set: the query would state none."""
    shared = ("--schema", str(learner.directory / "schema.toml"), "--epsilon", "1", "--purpose", purpose)
    model = str(learner.directory / "model.json")
    asked = {
        "query": ("query", "--design", "moments", *shared),
        "statistic": ("statistic", "y == 1", *shared),
        "train": ("train", "--estimator", "newton", "--output", model, *shared),
    }
    code, _, err = learner(*asked[command])
    assert (code, setting.stub.submitted) == (4, [])
    assert "a purpose has 1 to 200 printable characters" in err


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("--schema",), "there is no candidate"),
        (("y == 1", "--schema"), "there is one candidate"),
        (("y == 1", "y == 1", "--schema"), "all are the same"),
        (("y == 1", "true"), "give the --schema"),
        (("y == 1", "--model", "MODEL"), "either models"),
        (("--model", "MODEL"), "there is one candidate"),
        (("--model", "MODEL", "--model", "OTHER"), "hold other shares of rows back"),
        (("y == 1", "true", "--weight", "2", "--schema"), "1 weights of 2 candidates"),
    ],
)
def test_a_selection_of_nothing_is_refused_before_anything_is_asked(setting, learner, given, words):
    places = {name: learner.directory / f"{name}.json" for name in ("MODEL", "OTHER")}
    for name, share in {"MODEL": None, "OTHER": Fraction(1, 5)}.items():
        Model(np.zeros(SCHEMA.d), SCHEMA, "mean-variance", bytes(32), STATEMENT, held_back=share).save(places[name])
    schema = (str(learner.directory / "schema.toml"),) if given[-1] == "--schema" else ()
    code, _, err = learner("select", *(str(places.get(word, word)) for word in given), *schema, "--epsilon", "1")
    assert (code, setting.stub.submitted) == (4, [])
    assert words in " ".join(err.split())


@pytest.mark.more
def test_models_are_compared_on_the_rows_that_they_hold_back(setting, learner):
    files = [learner.directory / f"{name}.json" for name in ("first", "second")]
    for sign, file in zip((1.0, -1.0), files, strict=True):
        theta = sign * np.ones(SCHEMA.d)
        Model(theta, SCHEMA, "mean-variance", bytes(32), STATEMENT, held_back=Fraction(1, 5)).save(file)
    models = [word for file in files for word in ("--model", str(file))]
    code, found = learner.json("select", *models, "--epsilon", "4", "--max-rows", "10000")
    assert (code, found["data"]["chosen"] in map(str, files)) == (0, True)
    assert found["data"]["regret_on_distribution"] >= found["data"]["regret_on_rows"] >= 0
    (sent,) = setting.stub.submitted
    query = Query.from_bytes(sent.payload)
    assert (query.held_back.share, query.held_back.part, len(query.kind.batch)) == (Fraction(1, 5), "held-back", 2)


def test_every_command_that_asks_has_the_options_of_a_query():
    """One grammar: what has --quorum-wait has --purpose, and times in which people can decide."""
    for command in typer.main.get_command(app).commands["learner"].commands.values():
        names = {name for option in command.params for name in option.opts}
        for option in ("--purpose", "--answer-within-s", "--expires-after-s"):
            assert ("--quorum-wait" in names) == (option in names), command.name


OF_ASKING = [
    ("--answer-within-s", "60"),
    ("--expires-after-s", "60"),
    ("--cohort-min", "3"),
    ("--max-rows", "9"),
    ("--quorum-wait", "9"),
    ("--purpose", "Study 17"),
    ("--timeout-s", "9"),
    ("--would-accept",),
]


@pytest.mark.parametrize("option", OF_ASKING, ids=lambda option: option[0])
def test_what_only_asking_takes_is_not_dropped_where_a_saved_answer_is_read(learner, option):
    """`train RELEASE --would-accept` trained a model."""
    model = learner.directory / "model.json"
    code, _, err = learner(
        "train", "release", "--estimator", "mean-variance", "--output", str(model), *option, config=False
    )
    assert (code, model.exists()) == (4, False)
    assert f"takes no {option[0]}; leave it out" in err
    for command in ("histogram", "quantiles"):
        code, _, err = learner(command, "--release", "release", *option, config=False)
        assert code == 4
        assert f"leave {option[0]} out, or --release" in err


def test_a_quorum_wait_of_nothing_is_refused(setting, learner):
    code, _, err = learner.query("--quorum-wait", "0")
    assert (code, setting.stub.submitted) == (4, [])
    assert "quorum_wait_s is 0; it must be at least 1" in err


def test_the_list_is_a_table_in_local_time_with_the_kind_of_query(setting, learner):
    setting.stub.parties = (PartyProgress("ada", PartyState.ACCEPTED), PartyProgress("bo", PartyState.PENDING))
    for _ in range(2):
        learner.query("--no-wait", "--ask-again")
    _, out, _ = learner("list")
    header, *rows = out.splitlines()
    assert header.split() == ["asked", "query", "kind", "phase", "left", "parties"]
    assert {query_id[:16] for query_id in learner.asked} == set(re.findall("[0-9a-f]{16}", out))
    row = re.escape("dp-feat  answering  1 min  1 of 2 answered; waiting for a decision at bo")
    assert all(re.fullmatch(rf"\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d \S+  \w{{16}}  {row}", line) for line in rows), rows
    assert learner("list", "--limit", "1")[1].splitlines()[-1] == "1 older query; --limit shows more"
    _, found = learner.json("list")
    assert [query["kind"] for query in found["data"]["queries"]] == ["dp-feat", "dp-feat"]
    assert len(learner.json("list", "--limit", "1")[1]["data"]["queries"]) == 1


def test_a_status_says_of_each_party_where_it_stands_and_advises(setting, learner):
    learner.query("--no-wait")
    (query_id,) = learner.asked
    setting.stub.phases, setting.stub.code = [Phase.FAILED], "COHORT_TOO_SMALL"
    setting.stub.parties = (
        PartyProgress("ada", PartyState.REFUSED, "POLICY_DESIGN"),
        PartyProgress("bo", PartyState.SILENT),
        PartyProgress("cy", PartyState.ACCEPTED, rows=300),
    )
    _, out, _ = learner("status", query_id[:16])
    assert "  ada: refused, POLICY_DESIGN\n  bo: did not answer in time\n  cy: accepted, 300 rows\n" in out
    assert out.endswith(f"Choose a design that the party admits. bo: {ASK_WHETHER_READY}\n")
    assert "2 of 3 answered; refused: ada (POLICY_DESIGN); without an answer: bo\n" in learner("list")[1]
    code, _, err = learner("fetch", query_id[:16])
    assert code == 6
    assert f"ada (POLICY_DESIGN): Choose a design that the party admits. bo: {ASK_WHETHER_READY}" in err


def test_no_file_is_overwritten(setting, learner, tmp_path):
    _, found = learner.json("query", "--schema", str(tmp_path / "schema.toml"), "--design", "dp-feat", "--rados", "40",
                            "--sensitive", "smoker", "--max-rows", "10000")  # fmt: skip
    release, model = found["data"]["release"], str(tmp_path / "model.json")
    assert found["data"]["rows_by_party"] == ROWS
    assert learner("train", release, "--output", model, config=False)[0] == 0
    kept = (tmp_path / "model.json").read_bytes()
    code, _, err = learner("train", release, "--estimator", "radoboost", "--output", model, config=False)
    assert code == 4
    assert "already exists" in err
    assert (tmp_path / "model.json").read_bytes() == kept
    rows = tmp_path / "rows.csv"
    rows.write_text("age,smoker\n40,yes\n50,no\n")
    code, _, err = learner("predict", model, str(rows), "--output", str(rows), config=False)
    assert code == 4
    assert rows.read_text().startswith("age,smoker")
    scores = tmp_path / "scores.csv"
    assert learner("predict", model, str(rows), "--output", str(scores), config=False)[0] == 0
    assert scores.read_text().count("\n") == 3
    rows.write_text("age,smoker\n" + "40,yes\n" * 50 + ",no\nsecret,no\n,no\n")
    why = "In column 'age' 2 of 53 cells are empty, and missing = \"zero-vector\" leaves their rows out"
    with pytest.warns(UserWarning, match=re.escape(f"3 of 53 rows are not usable: i{why[1:]}")):
        code, out, err = learner("predict", model, str(rows), config=False)
    odd = "In column 'age' 1 of 53 cells is unreadable (no finite number), and unreadable = \"zero-vector\" leaves its"
    assert (code, out.split("\n")[1:3]) == (0, [why, f"{odd} row out"])
    assert "secret" not in out + err


@pytest.mark.more
def test_rados_that_a_model_separates_are_reported(learner, tmp_path):
    _, found = learner.json("query", "--schema", str(tmp_path / "schema.toml"), "--design", "dp-feat",
                            "--rados", "2", "--sensitive", "smoker", "--max-rows", "10000")  # fmt: skip
    release = found["data"]["release"]
    arguments = ("train", release, "--estimator", "radoboost", "--output")
    code, out, err = learner(*arguments, str(tmp_path / "a.json"), "--format", "json", config=False)
    assert code == 0
    # Two rados lie on one side of some plane through zero.
    assert "has no minimum" in json.loads(out)["data"]["warning"]
    assert "warning: theta is positive on all rows" in err
    plain = ("train", release, "--output", str(tmp_path / "b.json"), "--format", "json")
    assert json.loads(learner(*plain, config=False)[1])["data"]["warning"] is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--design", "gausian", "--rados", "5"], "did you mean 'gaussian'"),
        (["--design", "momnts", "--epsilon", "1"], "did you mean 'moments'"),
        (["--design", "gaussian", "--rados", "5", "--epsilon", "1e99999999"], "too large or too small"),
        (["--design", "dp-feat", "--sensitive", "smoker", "--rados", "5", "--joint"], "dp-feat with joint adds noise"),
    ],
)
def test_a_misspelt_option_sends_nothing(learner, tmp_path, arguments, said):
    code, _, err = learner("query", "--schema", str(tmp_path / "schema.toml"), *arguments)
    assert code == 4
    assert said in err
    assert learner.asked == []


def test_retry_starts_another_attempt_and_says_what_to_do_next(learner, setting):
    setting.stub.phases = [Phase.LOST]
    code, _, errors = learner.query()
    (query_id,) = learner.asked
    assert code == 6
    assert f"rado learner retry {query_id[:16]}" in errors
    code, out, _ = learner("status", query_id)
    assert code == 0
    assert "these did not finish: bo. It waits for `rado learner retry`" in out
    code, found = learner.json("retry", query_id, "--no-wait")
    assert (code, found["data"]["attempt"], len(setting.stub.retried)) == (0, 2, 1)
    setting.stub.phases = [Phase.COMPLETE]
    code, _, errors = learner("retry", query_id)
    assert code == 6
    assert "nothing to retry" in errors


@pytest.mark.more
def test_the_same_question_twice_is_offered_by_every_command_and_charged_again_with_a_word(setting, learner, tmp_path):
    schema = str(tmp_path / "schema.toml")
    asks = {
        "statistic": ("statistic", "y == 1", "--schema", schema, "--epsilon", "1"),
        "histogram": ("histogram", "age", "--schema", schema, "--epsilon", "1"),
    }
    for number, (name, words) in enumerate(asks.items()):
        before = len(setting.stub.submitted)
        first = learner.json(*words)
        assert first[0] == 0, name
        code, _, err = learner(*words)
        assert (code, len(setting.stub.submitted)) == (4, before + 1), number
        assert "--reuse" in err
        assert "--ask-again" in err
        again = learner.json(*words, "--reuse")
        assert (again[0], len(setting.stub.submitted)) == (0, before + 1)
        assert again[1] == first[1]
        assert learner(*words, "--ask-again")[0] == 0
        assert len(setting.stub.submitted) == before + 2
        assert learner(*words, "--ask-again", "--reuse")[0] == 4
        code, _, err = learner(*words[:-1], "1/2", "--reuse")
        assert code == 4
        assert "leave --reuse" in err
        assert len(setting.stub.submitted) == before + 2
    # What histogram asked, quantiles reads.
    assert learner("quantiles", *asks["histogram"][1:], "--reuse")[0] == 0


@pytest.mark.more
def test_the_same_release_twice_is_offered_and_the_advice_shows_it(setting, learner):
    assert learner.query()[0] == 0
    code, _, err = learner.query()
    assert (code, len(setting.stub.submitted)) == (4, 1)
    (query_id,) = re.findall(r"rado learner fetch ([0-9a-f]{16})", err)
    code, out, _ = learner("fetch", query_id)
    assert code == 0
    assert "40 rados" in out
    assert learner.query("--ask-again")[0] == 0
    assert len(setting.stub.submitted) == 2
