"""Questions whose answers differ by one record or one party, and one person who asks as several learners.

Each attack is made on exact sums with the parties' own shares of the noise, which is what a learner opens. It succeeds,
and no more often than allowed by the epsilon that the party's ledger charged (dpcore.accounting.odds.right_guesses).
With a quarter of the noise it succeeds more often, so each test can fail. Seeds are fixed.
"""

import itertools
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dpcore.accounting.filters import PrivacyLimit
from dpcore.accounting.noise_shares import LaplaceShares
from dpcore.accounting.odds import right_guesses
from dpcore.numbers.fixed_point import STORED_FRACTION_BITS, plan_encoding
from dpcore.predicates.evaluation import sums
from dpcore.predicates.expressions import Predicate
from dpcore.predicates.notation import parse
from dpcore.queries.statistic import StatisticQuery
from dpcore.randomness.sources import SeededRandom
from dpcore.records.records import Records
from parties.ledger.charges import RECORD, Charge, charge_for
from parties.ledger.ledger import Ledger
from parties.ledger.limits import BudgetExceededError, LedgerLimits
from tests.federation.party import OWNER, SCHEMA, World, make_records

ONE = 1 << STORED_FRACTION_BITS
TRIALS = 2000
CONFIDENCE = 1 - 1e-4
EPSILON = Fraction(1)
HONEST = 2
# The target is the only record of this age. The attacker wants to know whether it smokes.
SMOKERS = parse('x["smoker"]')
SMOKERS_BUT_ONE = parse('x["smoker"] & ~(x["age"] >= 99)')
FULL, QUARTER = Fraction(1), Fraction(1, 4)


def query(predicate: Predicate, noise: Fraction = FULL, epsilon: Fraction = EPSILON) -> StatisticQuery:
    """One count. noise: a fraction of the noise that epsilon needs."""
    return StatisticQuery((predicate,), SCHEMA, LaplaceShares(noise / epsilon, HONEST))


def people(rows: int, seed: int, target_smokes: bool | None = None) -> Records:
    """Records below the target's age; the first is the target, if there is one."""
    records = make_records(rows=rows, seed=seed)
    features = records.features.copy()
    features[:, 0] = np.minimum(features[:, 0], ONE // 2)
    if target_smokes is not None:
        features[0] = (ONE, ONE if target_smokes else -ONE, ONE)
    return Records(features, records.labels, records.usable)


def totals(kind: StatisticQuery, cohort: list[Records], seed: str) -> np.ndarray:
    """TRIALS answers over a cohort, as StatisticQuery.contribution makes them."""
    answers = np.zeros(TRIALS, dtype=np.int64)
    for number, records in enumerate(cohort):
        (exact,) = sums(kind.predicates, SCHEMA, records, 0, None)
        answers += exact + kind.noise.draw(TRIALS, SeededRandom(f"{seed}, party {number}".encode()))
    return answers


def least_success(found: dict[bool, np.ndarray]) -> float:
    """Lower limit (Clopper and Pearson's) of the probability to guess the bit right from a noisy bit."""
    right = sum(int(np.sum((values > 0.5) == bit)) for bit, values in found.items())
    trials = sum(map(len, found.values()))
    return float(stats.beta.ppf(1 - CONFIDENCE, right, trials - right + 1))


@pytest.fixture
def world(secret_key):
    return World(secret_key)


@pytest.fixture
def ledger(tmp_path):
    return Ledger.open(
        tmp_path / "ledger.sqlite", OWNER, LedgerLimits(PrivacyLimit(Fraction(100), Fraction(1, 100)), 0)
    )


numbers = itertools.count()


def charge(world: World, kind: StatisticQuery, learner: str = "lea") -> Charge:
    """What a party charges for a query of this kind."""
    encoding = plan_encoding(largest_sum=1 << 40, max_parties=3, fraction_bits=0)
    found = charge_for(world.query(kind=kind, schema=SCHEMA, encoding=encoding, honest_parties=HONEST), 30)
    return Charge(found.bounds, learner)


def spend(ledger: Ledger, what: Charge) -> None:
    query_id = next(numbers).to_bytes(32, "big")
    ledger.reserve(query_id, 1, what, lapses_at_unix_s=1e12, now_unix_s=0.0)
    ledger.charge(query_id, 1, cohort_digest=b"c" * 32, spool_digest=b"s" * 32, now_unix_s=0.0)


def allowed(ledger: Ledger) -> float:
    return right_guesses(float(ledger.spent(RECORD).epsilon), 0.0).probability


def test_predicates_that_differ_in_one_record(world, ledger):
    """The attacker knows no record: the difference of two counts is the target's bit, in the noise of both."""

    def attack(noise: Fraction) -> float:
        return least_success(
            {
                smokes: totals(query(SMOKERS, noise), cohort, f"all, {smokes}")
                - totals(query(SMOKERS_BUT_ONE, noise), cohort, f"but one, {smokes}")
                for smokes in (False, True)
                for cohort in [[people(30, 3, smokes), people(25, 1), people(25, 2)]]
            }
        )

    spend(ledger, charge(world, query(SMOKERS)))
    spend(ledger, charge(world, query(SMOKERS_BUT_ONE)))
    assert ledger.spent(RECORD).epsilon == 2 * EPSILON
    assert 0.52 < attack(FULL) <= allowed(ledger) < attack(QUARTER)


def test_cohorts_that_differ_in_one_party(world, ledger):
    """One total with the party and one without it: the difference is its sum, in the noise of both totals.

    The attacker knows the party's other records. The party answered once, and is charged once.
    """
    others = [people(25, 1), people(25, 2)]

    def differences(noise: Fraction) -> dict[bool, np.ndarray]:
        return {
            smokes: totals(query(SMOKERS, noise), [people(30, 3, smokes), *others], f"with, {smokes}")
            - totals(query(SMOKERS, noise), others, f"without, {smokes}")
            for smokes in (False, True)
        }

    (known,) = sums((SMOKERS,), SCHEMA, people(30, 3, False), 0, None)

    def attack(noise: Fraction) -> float:
        return least_success({smokes: found - known for smokes, found in differences(noise).items()})

    spend(ledger, charge(world, query(SMOKERS)))
    assert ledger.spent(RECORD).epsilon == EPSILON
    assert 0.52 < attack(FULL) <= allowed(ledger) < attack(QUARTER)
    # Not protected: a fact about all of the party's records. Its count is known to within a few records.
    far = np.abs(differences(FULL)[False] - known) > 7
    assert far.mean() < 0.05


@pytest.mark.more
@pytest.mark.parametrize("lifetime", [16, pytest.param(30, marks=pytest.mark.slow)])
def test_several_learners_that_are_one_person(world, ledger, lifetime):
    """Limits for each learner add up to the lifetime's, which holds. They bound no person with several keys."""
    # At delta 0 epsilons add up exactly.
    each, half = PrivacyLimit(Fraction(1), Fraction(0)), EPSILON / 2
    ledger.limits = LedgerLimits(PrivacyLimit(Fraction(lifetime), Fraction(0)), 0, per_learner=each)
    refused: Counter[str] = Counter()
    for learner in (f"learner{i}" for i in range(lifetime + 5)):
        for _ in range(3):
            try:
                spend(ledger, charge(world, query(SMOKERS, epsilon=half), learner))
            except BudgetExceededError as error:
                refused["each learner" if "of each learner" in str(error) else "the lifetime"] += 1
    answers = sum(event.charged for event in ledger.events())
    assert answers == 2 * lifetime
    assert ledger.spent(RECORD).epsilon == lifetime
    # The last learner whose budget ends finds both at their end, and the lifetime is named.
    assert refused == {"each learner": lifetime - 1, "the lifetime": 16}

    def mean_answers(count: int) -> dict[bool, np.ndarray]:
        """The attacker knows all other records, and averages."""
        (known,) = sums((SMOKERS,), SCHEMA, people(30, 3, False), 0, None)
        return {
            smokes: np.mean(
                [
                    totals(query(SMOKERS, epsilon=half), [people(30, 3, smokes), people(25, 1)], f"{smokes}, {number}")
                    for number in range(count)
                ],
                axis=0,
            )
            - known
            - sums((SMOKERS,), SCHEMA, people(25, 1), 0, None)[0]
            for smokes in (False, True)
        }

    alone, as_many = least_success(mean_answers(2)), least_success(mean_answers(answers))
    assert alone <= right_guesses(1.0, 0.0).probability < as_many <= allowed(ledger)
