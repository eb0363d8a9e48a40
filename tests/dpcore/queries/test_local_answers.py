"""Local answers: the probabilities of flips, coins that repeat and no others, sums, and their cost."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dpcore.accounting.local_response import LocalResponse
from dpcore.accounting.protection import Setting
from dpcore.errors import ConfigurationError, PlanError
from dpcore.predicates.notation import parse
from dpcore.queries.kind import QueryLimits
from dpcore.queries.local_answers import coins, local_sums, row_codes
from dpcore.queries.statement import statement_for
from dpcore.queries.statistic import StatisticQuery
from dpcore.randomness.sources import SeededRandom
from dpcore.records.computation import Computation, PartySecret
from dpcore.records.records import Records
from dpcore.statistics.accuracy import Batch, LocalNoise
from tests.dpcore.estimators.oracle_world import flag, flag_rows, real, records, schema_of

LOG_THREE = Fraction(math.log(3))
SCHEMA = schema_of(flag("a"), flag("b"), real("age", 0, 100))
A, B, OLD = parse('x["a"]'), parse('x["b"]'), parse('x["age"] >= 50')
EPSILON = Fraction(1)
ROWS = 4000


def secret(byte: int = 1) -> PartySecret:
    return PartySecret(bytes([byte]) * 32, SCHEMA.digest)


def people(rows: int = ROWS, seed: int = 3) -> Records:
    generator = np.random.default_rng(seed)
    flags = generator.random((rows, 2)) < [0.3, 0.8]
    x = flag_rows(flags)
    return records(np.column_stack([x[:, :2], generator.uniform(-1, 1, rows), x[:, 2]]), np.ones(rows))


def shuffled(table: Records, seed: int = 5) -> Records:
    order = np.random.default_rng(seed).permutation(table.rows)
    return Records(table.features[order], table.labels[order], table.usable[order])


def sums(predicates, table, *, epsilon=EPSILON, key=1) -> list[int]:
    return local_sums(predicates, SCHEMA, table, LocalResponse(epsilon), secret(key)).tolist()


@pytest.mark.parametrize("epsilon", [Fraction(1, 1000), Fraction(1, 2), LOG_THREE, Fraction(10), Fraction(32)])
def test_the_odds_of_an_answer_are_at_most_e_to_the_epsilon_and_not_much_less(epsilon):
    u = LocalResponse(epsilon).chance
    ratio = (1 - u) / u
    assert math.log(ratio) == pytest.approx(float(epsilon), rel=1e-4)
    # In exact arithmetic: e^epsilon from below, by its series.
    series, term = Fraction(0), Fraction(1)
    for power in range(1, 200):
        series, term = series + term, term * epsilon / power
    assert ratio <= series
    assert (1 - u + Fraction(1, 2**63)) / (u - Fraction(1, 2**63)) > series


def test_two_fair_coins_keep_three_quarters_of_the_answers():
    """Slides of Bassily, Smith and Thakurta (2014), equations 3 and 4: epsilon log 3."""
    assert float(LocalResponse(LOG_THREE).chance) == pytest.approx(0.25, abs=1e-15)


def test_answers_are_flipped_as_often_as_stated():
    table, response = people(), LocalResponse(EPSILON)
    codes = row_codes(table, secret())
    flipped = coins(codes, A, response, secret()) < np.uint64(response.flipped_below)
    expected, deviation = ROWS * float(response.chance), math.sqrt(ROWS * float(response.chance)) / 2
    assert abs(flipped.sum() - expected) < 5 * deviation
    # Another epsilon's coins would be noticed.
    assert abs(flipped.sum() - ROWS * float(LocalResponse(Fraction(7, 10)).chance)) > 5 * deviation


def test_the_same_question_has_the_same_answer_whenever_and_about_whatever_part_it_is_asked():
    table = people()
    assert sums([A, B], table) == sums([A, B], table) == [*sums([A], table), *sums([B], table)]
    assert sums([A, OLD], shuffled(table)) == sums([A, OLD], table)
    inside = np.random.default_rng(1).random(ROWS) < 0.5
    half, codes = table.only(inside), row_codes(table, secret())
    of_half = row_codes(half, secret())
    assert all((of_half[16 * i : 16 * i + 16] == codes[16 * i : 16 * i + 16]) == inside[i] for i in range(ROWS))


def test_other_questions_secrets_and_rows_have_coins_of_their_own():
    table, one = people(), LocalResponse(EPSILON)
    codes = row_codes(table, secret())
    assert len({codes[16 * i : 16 * i + 16] for i in range(ROWS)}) == ROWS
    first = coins(codes, A, one, secret())
    others = [
        coins(codes, B, one, secret()),
        coins(codes, A, LocalResponse(Fraction(2)), secret()),
        coins(row_codes(table, secret(2)), A, one, secret(2)),
        coins(row_codes(table.only(np.zeros(ROWS, dtype=np.bool_)), secret()), A, one, secret()),
    ]
    for other in others:
        high = (first >> np.uint64(63)) == (other >> np.uint64(63))
        assert abs(high.sum() - ROWS / 2) < 5 * math.sqrt(ROWS) / 2


def test_a_replaced_record_changes_no_other_records_coin():
    """Not even where rows of its content follow: the elements that both tables have are all but one."""
    table = people(200, seed=9)
    copies = Records(np.vstack([table.features] * 2), np.tile(table.labels, 2), np.tile(table.usable, 2))
    features = copies.features.copy()
    features[3] = features[120]
    changed = Records(features, copies.labels, copies.usable)

    def elements(rows):
        codes = row_codes(rows, secret())
        return {codes[16 * i : 16 * i + 16] for i in range(400)}

    assert len(elements(copies) - elements(changed)) == len(elements(changed) - elements(copies)) == 1


def test_progress_is_called_from_the_first_rows_on_and_stops_the_work():
    seen = []
    table = people(5000)
    local_sums([A, B], SCHEMA, table, LocalResponse(EPSILON), secret(), lambda *at: seen.append(at))
    assert (seen[0], seen[-1]) == ((0, 5000), (5000, 5000))

    def stop(*_):
        raise InterruptedError

    with pytest.raises(InterruptedError):
        local_sums([A], SCHEMA, table, LocalResponse(EPSILON), secret(), stop)


@pytest.mark.more
def test_estimates_are_unbiased_and_as_far_off_as_stated():
    table, response = people(), LocalResponse(EPSILON)
    true = local_sums([A, OLD], SCHEMA, table, LocalResponse(Fraction(32)), secret())
    found = np.array([response.unbiased(np.array(sums([A, OLD], table, key=key), float), ROWS) for key in range(1, 61)])
    deviation = response.deviation(ROWS)
    assert np.abs(found.mean(axis=0) - true).max() < 4.5 * deviation / math.sqrt(60)
    assert 0.75 < found.std() / math.hypot(deviation, np.ptp(true) / 2) < 1.3
    assert 0.75 < found.std(axis=0).mean() / deviation < 1.25
    wide = response.half_width(ROWS, 2, 0.05)
    assert (np.abs(found - true).max(axis=1) > wide).mean() <= 0.1
    assert 1.9 * deviation < wide < 3.5 * deviation
    # Bernstein's bound is the smaller one where few answers are flipped.
    assert LocalResponse(Fraction(12)).half_width(ROWS, 1, 0.05) < math.sqrt(ROWS * math.log(40) / 2) / 5


def query(*predicates, epsilon=EPSILON) -> StatisticQuery:
    return StatisticQuery(predicates, SCHEMA, LocalResponse(epsilon))


def test_the_cost_is_that_of_the_bits_that_a_record_can_change_whoever_colludes():
    setting = Setting(SCHEMA.d, 0, 1)
    overlapping, exclusive = query(A, B, OLD), query(parse('x["age"] < 50'), OLD, parse("false"))
    for kind, bits in ((overlapping, 3), (exclusive, 2), (query(A), 1)):
        cost = kind.protection(setting).cost([10, 20, 30], Fraction(1, 10**6))
        assert (cost.delta, cost.epsilon, cost.epsilon_if_others_collude) == (0.0, bits, bits)
        assert kind.protection(setting).loss(10, Fraction(1, 10**6)).epsilon == bits
    # Searched over all records of the three bits: some change all, none of the exclusive ones more than two.
    worlds = people(400, seed=8)
    for kind, bits in ((overlapping, 3), (exclusive, 2)):
        rows = [tuple(kind_sums(kind, worlds.between(i, i + 1))) for i in range(400)]
        assert max(sum(a != b for a, b in zip(x, y, strict=True)) for x in set(rows) for y in set(rows)) == bits


def kind_sums(kind: StatisticQuery, table: Records):
    return kind.sums(table, 0)


def test_statement_and_words_say_that_it_is_local():
    kind = query(A)
    assert kind.name == "local-statistic"
    assert "answers flipped at random" in kind.words()
    statement = statement_for(kind, [10, 20], Fraction(1, 10**6), schema=SCHEMA, setting=Setting(SCHEMA.d, 0, 1))
    assert (statement.epsilon, statement.epsilon_if_others_collude, statement.delta) == (1.0, 1.0, 0.0)
    assert any("The protection is local" in text and "0.268941" in text for text in statement.assumptions)


def test_a_contribution_has_its_bound_and_needs_the_secret():
    table, kind = people(), query(A, parse("true"))
    limits = QueryLimits(ROWS, 3, SCHEMA.d)
    assert kind.largest_sum(limits, 0) == ROWS
    # The random source is not used: all coins derive from the secret.
    computation = Computation(SeededRandom(0), secret())
    found = kind.contribution(table, 0, computation)
    assert found.tolist() == kind.contribution(table, 0, replace(computation, random=SeededRandom(1))).tolist()
    assert 0 <= found.min() <= found.max() <= ROWS
    with pytest.raises(ConfigurationError, match="secret"):
        kind.contribution(table, 0, Computation(SeededRandom(0)))
    for wrong in (lambda: kind.contribution(table, 1, computation), lambda: kind.largest_sum(limits, 8)):
        with pytest.raises(PlanError, match="fraction_bits"):
            wrong()


@pytest.mark.parametrize("epsilon", [Fraction(0), Fraction(-1), Fraction(33), Fraction(1, 2**62), 0.5])
def test_an_epsilon_out_of_range_is_refused(epsilon):
    with pytest.raises(PlanError):
        LocalResponse(epsilon)


def test_only_bits_of_unmapped_records_are_asked():
    with pytest.raises(PlanError, match="clipped forms"):
        query(parse('clip(z["age"])'))


def test_rows_for_a_tolerance_are_the_least_that_keep_it():
    batch = Batch(2, LocalNoise(LocalResponse(EPSILON)))
    rows = batch.rows(0.05, 0.05)
    assert batch.half_widths(rows, 0.05).tolerance <= 0.05 < batch.half_widths(rows - 1, 0.05).tolerance
    # Noise over rows falls with the root of the rows: four times as many for half the tolerance.
    assert batch.rows(0.025, 0.05) == pytest.approx(4 * rows, rel=0.01)
