"""Parties are asked whether they would accept: their rows are known, nothing is charged, and plans follow."""

import json

import pytest

import radofed
from dpcore.errors import OracleRefusedError
from radofed.cli.entry_point import run
from radofed.node_config import PolicyChoices
from tests.end_to_end.test_asking import SCHEMA, table
from tests.federation.processes import ProcessFederation, rado
from wire.errors import CATALOGUE, Code

pytestmark = pytest.mark.more

ROWS = dict.fromkeys("abc", 3000)
STALE = dict.fromkeys(ROWS, 100)
ALLOWING = PolicyChoices(designs=("statistic", "moments", "gradient"), epsilon="4", delta="1e-3")


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    root = tmp_path_factory.mktemp("would-accept")
    parties = {name: table(rows, seed) for seed, (name, rows) in enumerate(ROWS.items())}
    with ProcessFederation(root, parties=parties, schema=SCHEMA, policy=ALLOWING, rows_at_least=STALE) as federation:
        federation.serve("--bits", "2048")
        yield federation


def spent(federation) -> list[float]:
    shown = [rado("ledger", "show", "--config", str(federation.member(name).config))["data"] for name in ROWS]
    return [scope["spent"]["epsilon"] for each in shown for scope in each["scopes"] if scope["scope"] == "record"]


def test_a_training_is_asked_about_as_a_whole_and_then_has_the_present_rows(federation):
    """The roster's numbers are too small for curves; the parties' are not."""
    model = federation.root / "additive.json"
    train = ("learner", "train", "--estimator", "additive", *federation.asking, "--epsilon", "1", "--rounds", "3")
    stops = (*train, "--option", "stop_if_straight=true", "-o", str(model))
    assert run([*stops]) != 0, "straight by the roster's numbers"
    found = rado(*train, "-o", str(model), "--would-accept")["data"]
    assert found["enough"]
    assert [question["would_accept"] for question in found["questions"]] == [ROWS] * 3
    assert {question["what"].split()[0] for question in found["questions"]} != set()
    assert all(0.9 < question["epsilon_if_others_collude"] <= 1 for question in found["questions"])
    assert not any(spent(federation))
    assert rado("learner", "list", "--config", str(federation.learner.config))["data"]["unsent"] == []
    made = rado(*stops)["data"]
    assert made["answers"] == 3
    assert "straight" not in (made["warning"] or "")
    assert json.loads(model.read_text())["feature_map"]


def test_what_does_not_fit_is_refused_without_a_charge(federation):
    before = spent(federation)
    words = ("learner", "statistic", "y == 1", *federation.asking, "--would-accept")
    found = rado(*words, "--epsilon", "9", code=1)["data"]
    assert not found["enough"]
    assert found["questions"][0]["would_refuse"] == dict.fromkeys(ROWS, "BUDGET_EXCEEDED")
    assert rado(*words, "--epsilon", "1/10")["data"]["enough"]
    assert spent(federation) == before


@pytest.mark.more
def test_a_question_is_no_answer_that_could_be_reused(federation):
    words = ("learner", "statistic", "y == -1", *federation.asking, "--epsilon", "1/10")
    rado(*words, "--would-accept")
    (shown,) = rado("ledger", "history", "--config", str(federation.member("a").config), "--limit", "1")["data"][
        "queries"
    ]
    assert shown["decision"] == "only asked, and would accept it: nothing was charged"
    assert run([*words, "--reuse"]) == 4
    before = spent(federation)
    assert rado(*words)["data"]["rows"] == sum(ROWS.values())
    assert spent(federation) > before


@pytest.mark.more
def test_every_command_that_asks_gives_people_time(federation):
    """People who decide need longer than ten minutes."""
    times = ("--answer-within-s", "7200", "--expires-after-s", "90000", "--epsilon", "1/100")
    model = federation.root / "timed.json"
    rado("learner", "statistic", "y == 1", *federation.asking, *times)
    rado("learner", "histogram", "age", *federation.asking, *times)
    rado("learner", "train", "--estimator", "naive-bayes", *federation.asking, *times, "-o", str(model))
    rado("learner", "evaluate", str(model), *federation.asking[:2], *times)
    history = ("ledger", "history", "--config", str(federation.member("a").config))
    shown = rado(*history, "--limit", "6")["data"]["queries"]
    # An evaluation first asks whether all of it would be accepted.
    last = [query for query in shown if not query["decision"].startswith("only asked")]
    assert len(last) == 5
    signed = [rado(*history, query["query_id"])["data"]["detail"] for query in last]
    assert {query["answer_within_s"] for query in signed} == {7200}
    assert {query["not_after_unix_s"] - query["created_at_unix_s"] for query in signed} == {90_000}


def test_a_party_without_an_answer_is_named_and_a_policy_is_followed(federation):
    policy = federation.directory("c") / "policy.toml"
    policy.write_text(policy.read_text().replace('"gradient"', '"gaussian"'))
    rado("party", "reload", "--config", str(federation.member("c").config))
    train = ("learner", "train", "--estimator", "newton", *federation.asking, "--epsilon", "1/2")
    found = rado(*train, "-o", str(federation.root / "n.json"), "--would-accept", code=1)["data"]
    assert [question["would_refuse"] for question in found["questions"]] == [{}, {"c": "POLICY_DESIGN"}]
    histogram = ("learner", "histogram", "age", *federation.asking, "--epsilon", "1/10", "--would-accept")
    assert rado(*histogram)["data"]["enough"]


@pytest.mark.more
def test_an_evaluation_is_asked_about_batch_by_batch(federation, capsys):
    model = federation.root / "bias.json"
    words = ("learner", "train", "--estimator", "naive-bayes", *federation.asking, "--epsilon", "1/10")
    rado(*words, "--output", str(model))
    before = spent(federation)
    config = ("--config", str(federation.learner.config))
    words = ("learner", "evaluate", str(model), *config, "--epsilon", "1/10", "--would-accept")
    found = rado(*words)["data"]
    assert found["enough"]
    costs = [question["epsilon_if_others_collude"] for question in found["questions"]]
    assert costs == pytest.approx([0.0125, 0.0875, 0.1], rel=1e-3)
    assert run([*words]) == 0
    said = capsys.readouterr().out
    assert "batch 1 of 2: where the scores are, rows by label in 256 cells of scores, epsilon 0.0125: 3" in said
    assert "batch 2 of 2: rows by label and bin of scores, in 8 bins, epsilon 0.0875: 3 of 3 parties would" in said
    assert "the composition of all batches, epsilon 0.1: 3 of 3 parties would accept" in said
    assert "the edges of batch 2 are known once batch 1 is answered" in said
    assert "z[" not in said
    assert run([*words, "--edges-part", "0"]) == 0
    said = capsys.readouterr().out
    assert (
        "rows by label and bin of scores, in 20 bins, and by label and prediction, epsilon 0.1: 3 of 3 parties" in said
    )
    assert "batch" not in said
    assert spent(federation) == before


@pytest.mark.more
def test_an_evaluation_that_does_not_fit_as_a_whole_charges_nothing(federation, capsys):
    """The first batch takes an eighth, which fits; it was charged before the second one was refused."""
    model = federation.root / "bias-too.json"
    words = ("learner", "train", "--estimator", "naive-bayes", *federation.asking, "--epsilon", "1/20")
    rado(*words, "--output", str(model))
    before = spent(federation)
    words = ("learner", "evaluate", str(model), "--config", str(federation.learner.config), "--epsilon")
    assert run([*words, "6"]) == 6
    said = capsys.readouterr().err
    assert "an evaluation asks 3 parties 2 times" in said
    # No more parties are waited for once one that would refuse is too many.
    assert "of 3 would refuse, and 3 have to accept; nothing was sent" in said
    with radofed.connect(federation.learner.config, schema=federation.root / "schema.toml", progress=False) as asked:
        with pytest.raises(OracleRefusedError, match="of 3 would refuse, and 3 have to accept; nothing was sent"):
            asked.evaluate(radofed.Model.load(model), epsilon=6)
        with pytest.raises(OracleRefusedError, match="about the whole training at epsilon 6"):
            asked.train("additive", epsilon=6)
    assert spent(federation) == before
    assert run([*words, "1/10"]) == 0
    assert "in total, epsilon is at most 0.1" in capsys.readouterr().err
    assert spent(federation) > before


@pytest.mark.more
def test_a_training_that_does_not_fit_as_a_whole_charges_nothing(federation, capsys):
    """Its first round does fit: it was charged before a later one was refused."""
    before, model = spent(federation), federation.root / "too-much.json"
    words = ("learner", "train", "--estimator", "additive", *federation.asking, "--output", str(model))
    assert run([*words, "--epsilon", "6"]) == 6
    said = capsys.readouterr().err
    assert "Asked first about the whole training at epsilon 6, 1 of 3 would refuse, and 3 have to accept" in said
    assert "nothing was asked" in said
    assert spent(federation) == before


@pytest.mark.more
def test_what_no_party_accepts_is_not_sent_and_counts_nothing(federation, capsys):
    """A schema that no party has, after answers to queries with the one that they have."""
    other = federation.root / "other.toml"
    other.write_text(SCHEMA.replace('name = "', 'name = "other-', 1))
    known = ("learner", "statistic", "~(y == 1)", *federation.asking, "--epsilon", "1/100")
    rado(*known, "--ask-again")
    listed = ("learner", "list", "--config", str(federation.learner.config))
    before, sent = spent(federation), sorted(query["query_id"] for query in rado(*listed)["data"]["queries"])
    config = ("--config", str(federation.learner.config))
    words = ("learner", "statistic", "y == 1", *config, "--schema", str(other), "--epsilon", "1/16")
    assert run([*words]) == 6
    said = capsys.readouterr().err
    which = "; ".join(f"{name} has another schema" for name in ROWS)
    assert f"parties, and {which}. Nothing was sent. {CATALOGUE[Code.SCHEMA_MISMATCH].hint}" in said
    assert "collusion" not in said
    assert spent(federation) == before
    known = {query["query_id"]: query for query in rado(*listed)["data"]["queries"]}
    assert sorted(known) == sent, "the parties stated their schemas, so not even a question was sent"
    # Who asks them has their own refusals.
    (question,) = rado(*words, "--would-accept", code=1)["data"]["questions"]
    assert question["would_refuse"] == dict.fromkeys(ROWS, "SCHEMA_MISMATCH")
    assert rado(*listed)["data"]["unsent"] == []


@pytest.mark.more
def test_too_few_max_rows_are_named_as_the_cause_and_the_advice_works(federation, capsys):
    words = ("learner", "statistic", 'x["smoker"]', *federation.asking, "--epsilon", "1/10")
    before = spent(federation)
    assert run([*words, "--max-rows", "2000"]) == 6
    said = capsys.readouterr().err
    assert "more rows than the query's max_rows of 2000 allows: ask with a larger --max-rows" in said
    assert "truncation" not in said
    assert spent(federation) == before
    assert rado(*words, "--max-rows", "10000")["data"]["rows"] == sum(ROWS.values())


@pytest.mark.more
def test_a_party_whose_rows_have_to_be_checked_says_so_at_once_and_the_advice_works(federation, capsys):
    """A column that a broken export left empty."""
    data, at = federation.directory("b") / "data.csv", ("--config", str(federation.member("b").config))
    whole = data.read_text()
    head, *rows = whole.splitlines()
    data.write_text("\n".join([head, *rows[: len(rows) // 2], ""]))
    rado("party", "reload", *at, code=1)
    words = ("learner", "statistic", "y == 1", *federation.asking, "--epsilon", "1/20")
    before = spent(federation)
    assert rado(*words, "--would-accept", code=1)["data"]["questions"][0]["would_refuse"] == {"b": "ROWS_NOT_ACCEPTED"}
    # The answering time is ten minutes; the query ends with the refusal.
    assert run([*words, "--cohort-min", "3"]) == 6
    said = capsys.readouterr().err
    assert f"b (ROWS_NOT_ACCEPTED): {CATALOGUE[Code.ROWS_NOT_ACCEPTED].hint.removesuffix('.')}" in said
    assert spent(federation) == before
    usable = rado("party", "status", *at)["data"]["usable_rows"]
    assert "rado party status" in said
    assert "rado party accept-rows" in said
    rado("party", "accept-rows", "--usable", str(usable), *at)
    assert rado(*words, "--ask-again")["data"]["rows"] == sum(ROWS.values()) - len(rows) // 2
    data.write_text(whole)
    rado("party", "reload", *at)


@pytest.mark.more
def test_a_party_with_a_schema_of_another_version_refuses_and_is_named(federation, capsys):
    """The columns are the same, but texts are compared in another form. Its own check says which fields differ."""
    (federation.directory("b") / "schema.toml").write_text(
        SCHEMA.replace("schema_version = 1", 'schema_version = 2\ntexts = ["nfc", "trim"]')
    )
    config = str(federation.member("b").config)
    rado("party", "reload", "--config", config)
    before = spent(federation)
    words = ("learner", "statistic", '~x["smoker"]', *federation.asking, "--epsilon", "1/10")
    (question,) = rado(*words, "--would-accept", code=1)["data"]["questions"]
    assert question["would_refuse"] == {"b": "SCHEMA_MISMATCH"}
    assert run([*words]) == 6
    assert "parties, and b has another schema. Nothing was sent." in capsys.readouterr().err
    assert spent(federation) == before
    checks = {each["name"]: each for each in rado("party", "check", "--config", config)["data"]["findings"]}
    assert "These differ: texts." in checks["refusals"]["detail"]
