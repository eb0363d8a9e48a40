"""Simulations that protect persons: folds and parties have whole persons, and figures are of these."""

import csv
import warnings

import numpy as np
import pytest

from dpcore.errors import ConfigurationError, DataError
from dpcore.queries.statistic import StatisticQuery
from radofed import simulate, simulate_federation, simulated_federation
from radofed.cli.entry_point import run
from radofed.planning.asked_cost import ask_cost
from radofed.planning.asked_queries import AskRequest
from radofed.planning.made_up import made_up_schema
from radofed.simulation.run import _folds, _parts
from radofed.simulation.table import Partition, read_table

pytestmark = pytest.mark.more

PERSONS, ROWS = 300, 900
OPTIONS = {"label": "ill", "positive": "1", "parties": 3, "folds": 3, "workers": 0}


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Persons with one to five rows, who differ; whether a row is ill depends on its age."""
    path, random = tmp_path_factory.mktemp("persons") / "table.csv", np.random.default_rng(1)
    who = np.sort(random.integers(0, PERSONS, ROWS))
    age = 40 + 15 * random.normal(size=PERSONS)[who] + random.normal(size=ROWS)
    ill = random.random(ROWS) < 1 / (1 + np.exp(-(age - 40) / 8))
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["who", "age", "ill"])
        writer.writerows((f"p{one}", f"{years:.3f}", int(sick)) for one, years, sick in zip(who, age, ill, strict=True))
    return path


class _Options:
    folds, parties, seed, partition = 3, 3, 0, Partition("iid")


@pytest.mark.parametrize("repeat", [1, 2])
def test_folds_and_parties_have_whole_persons(table, repeat):
    read = read_table(
        table,
        label="ill",
        positive="1",
        schema=None,
        group_column=None,
        id_column="who",
        persons_may_repeat=repeat,
    )
    codes, tests = read.persons.codes, []
    assert "who" not in {feature.column for feature in read.schema.features}
    for number, (training, test) in enumerate(_folds(read, _Options), start=1):
        assert not set(codes[training]) & set(codes[test])
        assert len(training) + len(test) == ROWS
        tests += test.tolist()
        parts = _parts(read, training, _Options, number)
        assert sorted(np.concatenate(parts)) == training.tolist()
        at = [sum(code in codes[part] for part in parts) for code in set(codes[training])]
        assert max(at) == repeat
    assert sorted(tests) == list(range(ROWS))


@pytest.mark.more
def test_a_simulation_of_persons_learns_and_says_whom_it_protects(table):
    found = simulate(table, estimators="newton", epsilon=4, unit="person", id_column="who", **OPTIONS)
    (statement,) = found.asked.values()
    assert statement.unit == "one person, with all rows at one party"
    errors = {summary.learner: summary.test_error_mean for summary in found.summaries}
    assert errors["newton"] < errors["logistic"] + 0.05
    assert found.federation.unit == "person"
    assert sum(found.federation.party_rows) < ROWS / 3
    assert "training persons" in " ".join(found.sentences())


def test_answers_are_averages_over_persons(table):
    federation = simulated_federation(
        table, label="ill", positive="1", parties=3, unit="person", id_column="who", persons_may_repeat=2
    )
    found = federation.statistic(["y == 1", "true"], epsilon=20)
    rows = list(csv.DictReader(table.open()))
    shares: dict[str, list[int]] = {}
    for row in rows:
        shares.setdefault(row["who"], []).append(int(row["ill"]))
    # A person at two parties is one at each of them.
    assert found.rows > len(shares)
    assert found.values[1] == pytest.approx(1, abs=found.noise)
    once = simulated_federation(table, label="ill", positive="1", parties=3, unit="person", id_column="who")
    alone = once.statistic(["y == 1"], epsilon=20)
    assert alone.rows == len(shares)
    assert alone.values[0] == pytest.approx(np.mean([np.mean(each) for each in shares.values()]), abs=alone.noise)
    assert isinstance(once.answers[0].query.kind, StatisticQuery)
    assert once.answers[0].statement.scope == "person"


def test_parties_with_tables_of_their_own_have_persons_of_their_own(table, tmp_path):
    header, *rows = table.read_text().splitlines()
    schema = read_table(
        table, label="ill", positive="1", schema=None, group_column=None, id_column="who", persons_may_repeat=1
    ).schema
    files = {}
    for place, name in enumerate(("north", "south", "west")):
        files[name] = tmp_path / f"{name}.csv"
        files[name].write_text("\n".join([header, *rows[place::3]]))
    federation = simulate_federation(files, schema=schema, unit="person", id_column="who", persons_may_repeat=3)
    found = federation.statistic(["y == 1"], epsilon=30)
    own = {name: len({row.split(",")[0] for row in rows[place::3]}) for place, name in enumerate(files)}
    assert dict(federation.answers[0].party_rows) == own
    assert found.rows == sum(own.values())
    assert federation.answers[0].statement.unit == "one person, with all rows at up to 3 parties"


def test_ids_at_more_parties_than_stated_are_warned_of(table, tmp_path):
    schema = read_table(
        table, label="ill", positive="1", schema=None, group_column=None, id_column="who", persons_may_repeat=1
    ).schema
    files = {}
    for name, ids in {"north": "abbc", "south": "bcd", "west": "ce"}.items():
        files[name] = tmp_path / f"{name}.csv"
        files[name].write_text("who,ill,age\n" + "".join(f"{each},1,30\n" for each in ids))
    terms = {"schema": schema, "unit": "person", "id_column": "who"}
    with pytest.warns(UserWarning, match=r"2 ids of 'who' are at up to 3 parties: .* give persons_may_repeat=3"):
        simulate_federation(files, **terms)
    with pytest.warns(UserWarning, match=r"1 id of 'who' is at up to 3 parties: .* rows at 2 of them"):
        simulate_federation(files, persons_may_repeat=2, **terms)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        simulate_federation(files, persons_may_repeat=3, **terms)


def test_what_persons_need_is_asked_for(table, tmp_path):
    with pytest.raises(ConfigurationError, match="persons need ids: give id_column"):
        simulate(table, epsilon=1, unit="person", **OPTIONS)
    with pytest.raises(ConfigurationError, match="id_column is about persons"):
        simulate(table, epsilon=1, id_column="who", **OPTIONS)
    with pytest.raises(ConfigurationError, match="a person may be at 4 of 3 parties"):
        simulate(table, epsilon=1, unit="person", id_column="who", persons_may_repeat=4, **OPTIONS)
    with pytest.raises(ConfigurationError, match="give id_column"):
        simulated_federation(table, label="ill", positive="1", unit="person")
    with pytest.raises(ConfigurationError, match='give unit = "person" too, or leave id_column out'):
        simulated_federation(table, label="ill", positive="1", id_column="who")
    with pytest.raises(ConfigurationError, match="a simulation over epochs protects records"):
        simulate(table, epsilon=1, unit="person", id_column="who", epochs=2, **{**OPTIONS, "folds": 10})
    few = tmp_path / "few.csv"
    few.write_text("who,age,ill\na,1,1\na,1,0\nb,3,1\nb,1,0\n")
    with pytest.raises(ConfigurationError, match="3 folds of 2 persons: choose fewer"):
        simulate(few, epsilon=1, unit="person", id_column="who", **OPTIONS)
    few.write_text("who,age,ill\na,1,1\n,1,0\nb,3,1\nb,1,0\n")
    with pytest.raises(DataError, match="1 row without an id"):
        simulate(few, epsilon=1, unit="person", id_column="who", **OPTIONS)


def test_a_plan_says_when_the_budget_is_too_small_for_so_many_persons():
    plan = {"schema": made_up_schema(20), "estimator": "newton", "unit": "person"}
    weak = ask_cost(AskRequest(party_rows=(400,) * 4, epsilon=1, **plan))
    assert "the budget is too small to learn nearly as well as without privacy" in weak.warning
    assert "times the persons" in weak.warning
    assert "1,600 persons in total" in weak.sentences()[0]
    assert ask_cost(AskRequest(party_rows=(40_000,) * 4, epsilon=1, **plan)).warning is None


@pytest.mark.more
def test_the_command_plans_and_simulates_persons(table, capsys):
    told = ["plan", "--unit", "person", "--rows", "5912", "--parties", "4", "--epsilon", "1", "--coordinates", "20"]
    assert run([*told, "--estimator", "newton"]) == 0
    assert "for one person, with all rows at one party" in capsys.readouterr().out
    assert run([*told, "--design", "gaussian"]) == 1
    assert "gaussian protects no persons" in capsys.readouterr().out
    labelled = ["--data", str(table), "--label", "ill", "--positive", "1"]
    simulated = ["simulate", *labelled, "--parties", "3", "--folds", "2", "--workers", "0"]
    assert run([*simulated, "--unit", "person", "--id-column", "who", "--estimator", "newton", "--epsilon", "4"]) == 0
    assert "training persons" in capsys.readouterr().out
