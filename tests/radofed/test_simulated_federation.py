"""A simulated federation to ask: answers of all rows with fresh noise, the same for a seed, within budgets."""

from fractions import Fraction

import numpy as np
import pytest

from dpcore.errors import ConfigurationError, PlanError
from dpcore.evaluation.selection import select
from radofed.simulation.oracles import simulated_federation

ROWS = 900
HALF = Fraction(1, 2)


@pytest.fixture(scope="module")
def age():
    return np.random.default_rng(3).integers(20, 95, ROWS)


@pytest.fixture(scope="module")
def table(tmp_path_factory, age):
    path = tmp_path_factory.mktemp("asked") / "people.csv"
    lines = [f"{years},{'abc'[place % 3]},{'yes' if years > 60 else 'no'}" for place, years in enumerate(age)]
    path.write_text("\n".join(["age,place,ill", *lines]) + "\n")
    return path


def asked(table, **options):
    return simulated_federation(table, label="ill", positive="yes", **{"parties": 4, **options})


def test_answers_are_of_all_rows_with_noise_of_the_size_that_is_stated(table, age):
    federation = asked(table)
    queries = [f'x["age"] >= {years}' for years in range(25, 95)]
    found = federation.statistic(queries, epsilon=Fraction(5))
    true = np.array([(age >= years).sum() for years in range(25, 95)])
    noise = found.values * found.rows - true
    assert found.rows == ROWS == federation.source.rows
    assert np.abs(noise).max() <= found.noise * ROWS
    # Of 70 draws a deviation is off by a twelfth or so.
    assert 0.7 < noise.std() / (found.deviation * ROWS) < 1.3
    assert federation.answers[0].statement.epsilon_if_others_collude <= 5


def test_a_threshold_is_selected_and_a_tolerance_beyond_the_rows_is_refused(table, age):
    federation = asked(table)
    oracle, years = federation.within(Fraction(4), Fraction(0)), range(50, 70, 2)
    with pytest.raises(PlanError, match="rows would"):
        select(years, oracle, _right, tolerance=0.01)
    assert oracle.left == 1
    found = select(years, oracle, _right)
    true = [np.mean((age >= limit) == (age > 60)) for limit in years]
    assert true[found.chosen] >= max(true) - found.regret_on_rows
    assert max(true) - min(true) > found.regret_on_rows
    assert found.chosen in {years.index(60), years.index(62)}
    assert oracle.statement().epsilon_if_others_collude <= 4


def _right(limit: int) -> str:
    return f'(x["age"] >= {limit}) & (y == 1) | (x["age"] < {limit}) & (y == -1)'


def test_local_answers_are_estimated_within_their_half_width_and_repeat(table, age):
    federation = asked(table)
    queries = ['x["age"] >= 60', "y == 1"]

    def ask(**options):
        oracle = federation.within(Fraction(2), Fraction(0))
        return oracle.statistic(queries, confidence=0.9, local=True, **options), oracle

    found, oracle = ask()
    true = np.array([np.mean(age >= 60), np.mean(age > 60)])
    assert np.abs(found.values - true).max() <= found.noise
    # Two answers of epsilon 1 each: u = 0.269, so the error of a share is sqrt(u (1 - u) / n) / (1 - 2 u).
    assert found.deviation == pytest.approx(0.444 / 0.462 / np.sqrt(ROWS), rel=0.01)
    (answer,) = oracle.answers
    assert (answer.statement.epsilon, answer.statement.epsilon_if_others_collude, answer.statement.delta) == (2, 2, 0)
    assert ask()[0].values.tolist() == found.values.tolist()
    with pytest.raises(PlanError, match="rows would"):
        ask(tolerance=0.01)
    with pytest.raises(ConfigurationError, match="a delta of 0"):
        federation.within(Fraction(2), Fraction(1, 10**6)).statistic(queries, part=Fraction(1, 2), local=True)
    with pytest.raises(ConfigurationError, match="these answers are local"):
        _ = found.shared_noise


def test_local_answers_about_a_part_of_the_rows_are_estimated_over_that_part(table, age):
    (federation, _), shares = asked(table).hold_back(Fraction(1, 2)), [np.mean(age >= 60), np.mean(age >= 40)]
    found = federation.statistic(
        ['x["age"] >= 60', 'x["age"] >= 40'], epsilon=Fraction(20), delta=Fraction(0), local=True
    )
    # Of a half of the rows: its share varies, and so does the number of rows in it.
    assert found.values == pytest.approx(shares, abs=0.15)
    assert np.abs(found.values - shares).max() <= found.tolerance


def test_a_seed_repeats_all_and_no_two_questions_share_noise(table):
    def twice(**options):
        federation = asked(table, **options)
        return [federation.statistic(["true", "y == 1"], epsilon=HALF).values.tolist() for _ in range(2)]

    first, second = twice()
    assert first != second
    assert twice() == [first, second]
    assert twice(seed=1)[0] != first


def test_encryption_changes_no_answer(table):
    plain, encrypted = asked(table), asked(table, encrypt=True, key_bits=2048)
    for federation in (plain, encrypted):
        federation.statistic(["y == 1"], epsilon=HALF)
    assert plain.answers[0].integers.tolist() == encrypted.answers[0].integers.tolist()


def test_partitions_terms_and_schemas_are_those_asked_for(table, tmp_path):
    federation = asked(table, parties=3, partition="by-column:place", colluders=0)
    assert "place" not in [feature.name for feature in federation.schema.features]
    answer = federation.within(HALF, Fraction(0))
    answer.statistic(["true"])
    assert set(federation.answers[0].party_rows.values()) == {ROWS // 3}
    assert federation.answers[0].query.honest_parties == 2
    (tmp_path / "schema.toml").write_text(federation.schema.to_toml())
    for schema in (federation.schema, tmp_path / "schema.toml", str(tmp_path / "schema.toml")):
        assert simulated_federation(table, schema=schema, parties=3).schema == federation.schema


@pytest.mark.parametrize("parties", [1, 1001])
def test_other_numbers_of_parties_are_refused(table, parties):
    with pytest.raises(ConfigurationError, match="choose 2 to 1000"):
        asked(table, parties=parties)


def test_both_parts_of_the_rows_add_up_to_all(table, age):
    federation = asked(table)
    parts = federation.hold_back(Fraction(1, 5))
    queries = [f'x["age"] >= {years}' for years in range(30, 90, 10)]
    true = np.array([(age >= years).sum() for years in range(30, 90, 10)])
    found = [part.statistic(queries, epsilon=Fraction(20)) for part in parts]
    counts = [part.values * part.rows for part in found]
    noise = sum(part.noise * part.rows for part in found)
    assert np.abs(sum(counts) - true).max() <= noise < 20
    assert [part.rows for part in found] == [720, 180]
    # Each party decides by its own key: four binomial numbers of 225 rows.
    assert 0 < abs(counts[1][0] - true[0] / 5) < 4.5 * np.sqrt(0.16 * ROWS) + noise
    again = asked(table).hold_back(Fraction(1, 5))[1].statistic(queries, epsilon=Fraction(20))
    assert np.abs(again.values * again.rows - counts[1]).max() <= 2 * noise


@pytest.mark.more
def test_encryption_changes_no_answer_about_a_part(table):
    plain, encrypted = (
        asked(table, **options).hold_back(HALF)[1] for options in ({}, {"encrypt": True, "key_bits": 2048})
    )
    for federation in (plain, encrypted):
        federation.statistic(["y == 1"], epsilon=HALF)
    assert plain.answers[0].integers.tolist() == encrypted.answers[0].integers.tolist()
