import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from dpcore.accounting import composition, dp_feat
from dpcore.accounting.composition import (
    DeltaTooSmallError,
    InfiniteEpsilonError,
    VoidEpsilonError,
    delta_bracket,
    epsilon_bracket,
)
from dpcore.accounting.dp_feat import (
    EmptyTruncationError,
    account,
    account_of_exact_split,
    delta_for,
    delta_per_rado,
    dp_feat_range,
    epsilon_for,
    largest_rados,
    own_epsilon,
    truncation,
)
from dpcore.accounting.protection import CountProtection
from dpcore.errors import PlanError
from dpcore.numbers import distributions
from dpcore.numbers.distributions import binomial_distribution, binomial_mass, pooled_distribution

HALF = Fraction(1, 2)


def exact_distribution(parties: list[tuple[int, int]]) -> list[Fraction]:
    """Exact masses of the summed k, from its least value on."""
    total = np.array([1], dtype=object)
    for rows, low in parties:
        total = np.convolve(total, np.array([math.comb(rows, k) for k in range(low, rows - low + 1)], dtype=object))
    return [Fraction(int(mass), int(sum(total))) for mass in total]


def exact_delta(p: list[Fraction], q: list[Fraction], n: int, epsilon: float) -> float:
    """Hockey-stick divergence of n independent releases, by enumeration of all outcomes."""
    delta = 0.0
    for outcome in itertools.product(range(len(p)), repeat=n):
        mass, other = (math.prod(distribution[k] for k in outcome) for distribution in (p, q))
        delta += max(0.0, float(mass) - math.exp(epsilon) * float(other))
    return delta


@pytest.mark.parametrize(
    ("parties", "n"), [([(8, 0)], 3), ([(9, 3)], 3), ([(6, 2), (7, 2)], 3), ([(5, 0), (4, 1)], 2), ([(40, 15)], 1)]
)
def test_brackets_hold_the_exact_figure_in_both_directions(parties, n):
    masses = exact_distribution(parties)
    p, q = [*masses, Fraction(0)], [Fraction(0), *masses]
    distribution = pooled_distribution(parties)
    for epsilon in (0.0, 0.3, 1.0, 2.0):
        deltas = [exact_delta(p, q, n, epsilon), exact_delta(q, p, n, epsilon)]
        assert deltas[0] == pytest.approx(deltas[1], rel=1e-9)
        bracket = delta_bracket(distribution, n, epsilon)
        assert bracket.lower <= deltas[0] * (1 + 1e-12)
        assert deltas[0] <= bracket.upper
        assert bracket.upper - bracket.lower <= 0.01 * bracket.upper
        if epsilon > 0 and deltas[0] > 1.001 * composition.infinite_mass(distribution, n):
            back = epsilon_bracket(distribution, n, deltas[0])
            assert back.lower <= epsilon * (1 + 1e-9)
            assert epsilon <= back.upper * (1 + 1e-9)


@pytest.mark.slow
def test_agrees_with_dp_accounting_on_the_bare_masses():
    from dp_accounting.pld import privacy_loss_distribution

    rows = [208 + (i < 17) for i in range(20)]
    masses = exact_distribution([(m, truncation(m, HALF)[0]) for m in rows])
    log_p = {k: math.log(mass) for k, mass in enumerate(masses) if mass > Fraction(1, 10**300)}
    log_q = {k + 1: value for k, value in log_p.items()}
    found = epsilon_for(rows, 100, HALF, 1e-6)
    for pessimistic in (True, False):
        reference = privacy_loss_distribution.from_two_probability_mass_functions(
            log_q, log_p, pessimistic, 5e-5, symmetric=False
        ).self_compose(100)
        epsilon = reference.get_epsilon_for_delta(1e-6)
        assert (found.lower <= epsilon) if pessimistic else (epsilon <= found.upper)
        assert epsilon == pytest.approx(found.upper, rel=0.01)


@pytest.mark.parametrize(
    "parties", [[(50, 0)], [(51, 20)], [(30, 10), (31, 11), (30, 10)], [(30, 10)] * 5, [(30, 0), (12, 0), (40, 17)]]
)
def test_distributions_are_the_exact_ones(parties):
    distribution, exact = pooled_distribution(parties), [float(mass) for mass in exact_distribution(parties)]
    assert distribution.low == sum(low for _, low in parties)
    assert distribution.masses.tolist() == pytest.approx(exact, rel=max(distribution.relative_error * 4, 1e-14))
    ratios = [math.log(after / before) for before, after in itertools.pairwise(exact)]
    assert np.abs(distribution.losses - ratios).max() <= distribution.loss_error + 1e-13


def test_cut_tails_are_lighter_than_stated():
    # Exact integers: the mass outside the window of 4,000 rows.
    distribution = binomial_distribution(4000)
    assert distribution.low > 0
    outside = Fraction(2 * sum(math.comb(4000, k) for k in range(distribution.low)), 2**4000)
    assert 0 < outside <= Fraction(distribution.trimmed)
    assert float(distribution.masses.sum()) == pytest.approx(1, rel=1e-12)


def test_mass_of_a_range():
    exact = Fraction(sum(math.comb(5001, k) for k in range(2450, 2552)), 2**5001)
    assert binomial_mass(5001, 2450) == pytest.approx(float(exact), rel=1e-12)
    assert binomial_mass(10, 6) == 0


@pytest.mark.parametrize("epsilon", [1.0, 4.0, 8.0])
@pytest.mark.parametrize(("rows", "n"), [(60, 2), (24, 3)])
def test_brackets_hold_tiny_deltas_in_both_directions(rows, n, epsilon):
    """Rounding is small in proportion to delta, also where delta is far below the round-off of one."""
    masses = exact_distribution([(rows, 0)])
    p, q = [*masses, Fraction(0)], [Fraction(0), *masses]
    # Without the outcomes that only one neighbour has, so that delta is not dominated by them.
    factor = Fraction(math.exp(epsilon))
    finite = [(a, b) for a, b in zip(p, q, strict=True) if a and b]
    pairs = [(Fraction(1), Fraction(1))]
    for _ in range(n):
        pairs = [(a * c, b * d) for a, b in pairs for c, d in finite]
    exact = sum((max(Fraction(0), a - factor * b) for a, b in pairs), Fraction(0))
    distribution = binomial_distribution(rows)
    tilt = composition._tilt_at(distribution, n, epsilon)
    composed = composition.compose(distribution, n, 1e-4, tilt, 1e-9)
    assert 0 < exact < Fraction(1, 10)
    found = composed.finite
    # On the grid losses are split upwards: the divergence is at least the true one, and close to it.
    assert found.delta(epsilon) + found.error(epsilon) >= exact * (1 - Fraction(1, 10**12))
    lower = found.delta(epsilon + composed.shift) - found.error(epsilon + composed.shift)
    assert lower <= exact * (1 + Fraction(1, 10**9))
    assert found.error(epsilon) <= 1e-2 * float(exact)


@pytest.mark.parametrize(("rows", "n"), [(4177, 100), (10**6, 10_000), (360, 500)])
def test_a_tilt_changes_the_place_of_the_accuracy_and_not_the_figure(rows, n):
    distribution = binomial_distribution(rows)
    mu = composition.spread(distribution, n)
    at = mu * mu / 2 + 4 * mu
    plain, tilted = (composition.compose(distribution, n, 1e-3 * mu, tilt, 1e-9).finite for tilt in (0.0, 4 / mu))
    assert abs(plain.delta(at) - tilted.delta(at)) <= plain.error(at) + tilted.error(at)
    assert tilted.error(at) < 1e-7 * tilted.delta(at) < 1e-2 * plain.error(at) + 1e-7 * tilted.delta(at)


def test_worked_split_over_parties():
    # The first row of the reference table over 10 and 20 equal parties.
    assert epsilon_for([417] * 10, 100, HALF, 1e-6).upper == pytest.approx(1.42, abs=0.01)
    assert epsilon_for([208] * 20, 100, HALF, 1e-6).upper == pytest.approx(1.67, abs=0.01)


def test_untruncated_parties_count_as_one_pool():
    assert epsilon_for([1000, 2000, 1177], 100, None, 1e-6) == epsilon_for([4177], 100, None, 1e-6)


def test_truncation_never_lowers_epsilon():
    free = epsilon_for([4177], 100, None, 1e-6)
    assert free.lower <= epsilon_for([4177], 100, HALF, 1e-6).upper
    # Twenty parties that each truncate have a visibly larger epsilon.
    assert epsilon_for([209] * 20, 100, HALF, 1e-6).lower > 1.1 * epsilon_for([209] * 20, 100, None, 1e-6).upper


def test_account_prints_both_figures():
    found = account([400, 300, 500], 50, None, Fraction(1, 10**6))
    assert found.epsilon_lower <= found.epsilon < found.epsilon_if_others_collude
    assert found.epsilon_if_others_collude == own_epsilon(300, 50, None, Fraction(1, 10**6))
    assert found.theorem_epsilon is None
    assert (found.rados, found.party_rows, found.delta) == (50, (400, 300, 500), 1e-6)
    assert account([4177], 100, HALF, 1e-6).theorem_epsilon == 50


def test_parties_that_a_truncation_hardly_touches_are_counted_by_the_smallest(monkeypatch):
    """A thousand sizes with one count for all, beside the pool's."""
    rows, each = range(20_000, 21_000), Fraction(1)
    assert distributions.hardly_truncated(rows[0], truncation(rows[0], each)[0])
    counted = []

    def noted(*arguments):
        counted.append(arguments)
        return epsilon_bracket(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(dp_feat, "epsilon_bracket", noted)
        found = account(rows, 1000, each, 1e-6)
    assert len(counted) == 2
    own = [
        epsilon_bracket(binomial_distribution(m, truncation(m, each)[0]), 1000, 1e-6)
        for m in (rows[0], rows[1], rows[-1])
    ]
    assert found.epsilon_if_others_collude == own[0].upper
    assert own[0].upper >= own[1].lower >= own[2].lower
    # A party whose truncation matters stays in, with any number of rows.
    assert not distributions.hardly_truncated(25_000, truncation(25_000, Fraction(3, 10))[0])
    alone = account([25_000], 100, Fraction(3, 10), 1e-6).epsilon_if_others_collude
    assert account([25_000, 10**6], 100, Fraction(3, 10), 1e-6).epsilon_if_others_collude == alone


def test_collusion_takes_the_worst_truncated_party():
    rows = [400, 401, 350]
    worst = max(own_epsilon(m, 5, Fraction(3, 2), 1e-4) for m in rows)
    assert account(rows, 5, Fraction(3, 2), 1e-4).epsilon_if_others_collude == worst


def test_a_lone_party_has_one_figure():
    found = account([4177], 100, HALF, 1e-6)
    assert found.epsilon == found.epsilon_if_others_collude


def test_delta_and_epsilon_are_inverse():
    epsilon = epsilon_for([4177], 100, HALF, 1e-6)
    delta = delta_for([4177], 100, HALF, (epsilon.lower + epsilon.upper) / 2)
    assert delta.lower <= 1.1e-6
    assert delta.upper >= 0.9e-6
    assert delta.upper - delta.lower <= 0.01 * delta.upper
    assert delta_for([1000], 1, Fraction(1, 100), 1.0).upper == 1


def test_largest_rados_is_the_last_that_fits():
    n = largest_rados([4177], HALF, 1.0, 1e-6)
    assert n > 10
    assert epsilon_for([4177], n, HALF, 1e-6).upper <= 1.0
    assert epsilon_for([4177], n + 1, HALF, 1e-6).upper > 1.0
    assert largest_rados([4177], HALF, 1.0, 1e-6, most=n) == n
    assert largest_rados([4177], HALF, 1.0, 1e-6, most=n - 3) == n - 3
    assert largest_rados([10], None, 1.0, 1e-6) == 0


def test_a_party_of_one_row_is_counted_in_an_exact_split():
    with pytest.raises(InfiniteEpsilonError):
        account_of_exact_split([1, 60], 1, Fraction(1), 0.4)
    assert account_of_exact_split([1, 60], 1, Fraction(1), 0.6).epsilon_if_others_collude < 1e-9
    for rows in ([0, 60], []):
        with pytest.raises(PlanError, match="at least one party"):
            account_of_exact_split(rows, 1, Fraction(1), 0.6)


@pytest.mark.parametrize(("rows", "each"), [(50, HALF), (51, HALF), (400, HALF), (401, Fraction(1, 3))])
def test_the_delta_of_a_rado_is_its_least_mass(rows, each):
    low, _ = truncation(rows, each)
    assert delta_per_rado(rows, each) == pytest.approx(float(exact_distribution([(rows, low)])[0]), rel=1e-9)


@pytest.mark.parametrize("most", [0, 1, 2, 9, 100, 12_345])
@pytest.mark.parametrize(
    "cost",
    [
        lambda n, fits: 1.0,
        lambda n, fits: 0.0,
        lambda n, fits: n / fits,
        lambda n, fits: 0.999 + 0.001 * n / fits,
        lambda n, fits: 2.0 ** (n - fits),
    ],
)
@pytest.mark.parametrize("above", [1.0000001, math.inf])
def test_the_most_rados_do_not_depend_on_the_guesses(monkeypatch, most, cost, above):
    """Also where the last that fits costs exactly the limit."""

    def own(distribution, n, budget):
        return min(1.0, cost(n, most)) if n <= most else above

    monkeypatch.setattr(dp_feat, "_learners_own", own)
    assert largest_rados([60], None, 1.0, 1e-5, 100_000) == most
    # As many as are asked for, where all of them fit.
    assert [largest_rados([60], None, 1.0, 1e-5, asked) for asked in range(1, most + 1)[:4]] == [1, 2, 3, 4][:most]


@pytest.mark.parametrize("each", [1e-5, 1e-2, 1.0])
@pytest.mark.parametrize("delta", [1e-9, 0.01])
def test_the_rule_finds_the_most_rados_in_three_counts(monkeypatch, each, delta):
    """Where the loss is a Gaussian's: mu^2 / 2 + mu sqrt(2 log 1/delta), mu^2 in proportion to n."""
    counted = []

    def own(distribution, n, budget):
        counted.append(n)
        mu = each * math.sqrt(n)
        return mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / delta))

    monkeypatch.setattr(dp_feat, "_learners_own", own)
    epsilon = own(None, 70.5, delta)
    counted.clear()
    assert largest_rados([60], None, epsilon, delta) == 70
    assert len(counted) <= 3


def test_the_range_of_a_party_is_what_it_charges():
    delta = Fraction(1, 10**6)
    found = dp_feat_range(4177, delta=delta, epsilon=Fraction(2), most_rados=10**6)
    assert found.one_rado == own_epsilon(4177, 1, None, delta)
    assert own_epsilon(4177, found.largest, None, delta) <= 2 < own_epsilon(4177, found.largest + 1, None, delta)
    assert dp_feat_range(4177, delta=delta, epsilon=Fraction(2), most_rados=7).largest == 7
    assert dp_feat_range(4177, delta=delta, epsilon=Fraction(0), most_rados=7).largest == 0
    assert dp_feat_range(400, delta=Fraction(1, 100), epsilon=HALF, most_rados=2).largest == 2


def test_the_range_names_the_rows_that_a_finite_bound_needs():
    delta = Fraction(1, 10**6)
    short = dp_feat_range(19, delta=delta, epsilon=Fraction(100), most_rados=7)
    assert (short.one_rado, short.largest, short.delta_needed) == (None, 0, 2.0**-19)
    assert short.rows_needed == 20
    assert dp_feat_range(20, delta=delta, epsilon=Fraction(100), most_rados=7).one_rado is not None


def test_infinite_epsilon_is_refused_with_what_works():
    with pytest.raises(InfiniteEpsilonError) as caught:
        epsilon_for([4177], 100, Fraction(3, 10), 1e-6)
    works = caught.value.largest_rados
    assert f"at most {works} rados" in str(caught.value)
    assert epsilon_for([4177], works, Fraction(3, 10), 1e-6).upper < math.inf
    with pytest.raises(InfiniteEpsilonError):
        epsilon_for([4177], works + 1, Fraction(3, 10), 1e-6)


def test_a_single_admissible_count_reveals_everything():
    with pytest.raises(InfiniteEpsilonError, match="probability 1: truncate less"):
        epsilon_for([1000], 1, Fraction(1, 100), 1e-6)
    assert delta_per_rado(1000, Fraction(1, 100)) == 1
    with pytest.raises(EmptyTruncationError):
        epsilon_for([1000], 1, Fraction(1, 1000), 1e-6)


def test_small_parties_without_truncation_are_infinite_where_they_are():
    assert delta_per_rado(10, None) == 2.0**-10
    assert delta_per_rado(10**6, None) == 0
    with pytest.raises(InfiniteEpsilonError):
        own_epsilon(10, 1, None, 1e-4)
    with pytest.raises(InfiniteEpsilonError):
        account([10, 4000], 1, None, 1e-4)
    assert own_epsilon(10, 1, None, 1e-2) < 10


def test_void_and_uncountable_plans_are_refused():
    with pytest.raises(VoidEpsilonError, match="fewer rados"):
        epsilon_for([300], 20_000, None, 1e-6)
    with pytest.raises(DeltaTooSmallError) as caught:
        epsilon_for([4177], 10_000, None, 1e-35)
    assert epsilon_for([4177], 10_000, None, caught.value.smallest_delta).upper < math.inf


@pytest.mark.parametrize("delta", [0, 1, -1e-6, 1.5, math.nan])
def test_bad_delta(delta):
    with pytest.raises(PlanError, match="between 0 and 1"):
        account([100], 1, None, delta)


def test_bad_arguments():
    assert dp_feat._rados(dp_feat.MOST_RADOS) == dp_feat.MOST_RADOS
    for arguments in (([], 1), ([0], 1), ([100], 0), ([1 << 60], 1), ([100], dp_feat.MOST_RADOS + 1)):
        with pytest.raises(PlanError):
            account(*arguments, None, 1e-6)
    for epsilon in (0.0, -1.0, math.nan):
        with pytest.raises(PlanError):
            largest_rados([100], None, epsilon, 1e-6)
    for epsilon in (-1.0, 151.0, math.nan):
        with pytest.raises(PlanError):
            delta_for([100], 1, None, epsilon)


@pytest.mark.more
def test_large_plans_are_counted():
    for rows, epsilon in (([10**6], Fraction(1, 10)), ([250_000 + i for i in range(4)], None), ([10**6], None)):
        found = account(rows, 10_000, epsilon, 1e-6)
        assert found.epsilon - found.epsilon_lower <= 0.01 * found.epsilon


@pytest.mark.parametrize("first", [-700, 3])
def test_losses_on_a_grid_are_read_as_dp_accounting_does(first):
    from dp_accounting.pld import pld_pmf

    rng = np.random.default_rng(5)
    masses = rng.dirichlet(np.ones(1000)) * (1 - 1e-7)
    mine = composition.GridLosses(1e-3, first, masses, 1e-7)
    theirs = pld_pmf.DensePLDPmf(1e-3, first, masses, 1e-7, pessimistic_estimate=True)
    for epsilon in (0.0, 0.0017, 0.1, 0.29, 0.9, 1.1, 5.0):
        assert mine.delta(epsilon) == pytest.approx(theirs.get_delta_for_epsilon(epsilon), rel=1e-10)
    for delta in (1e-6, 1e-3, 0.02, 0.1, 0.3, 0.45, 0.9):
        assert mine.epsilon(delta) == pytest.approx(theirs.get_epsilon_for_delta(delta), rel=1e-9, abs=1e-12)
    assert mine.epsilon(1e-8) == math.inf


@pytest.mark.parametrize("delta", [0.05, 0.5, 0.9])
def test_an_epsilon_where_every_loss_is_above_zero(delta):
    """Losses 3 and 4, each with half of the mass."""
    found = composition.GridLosses(1.0, 3, np.array([0.5, 0.5]), 0.0).epsilon(delta)
    above = [1 - math.exp(found - loss) for loss in (3, 4) if loss > found]
    assert sum(above) / 2 == pytest.approx(delta, rel=1e-9)


def test_no_loss_has_no_lower_bound():
    assert composition.GridLosses(1.0, 0, np.ones(1), 0.0).epsilon_lower(0.5) == 0


def test_every_truncation_that_may_be_the_worst_is_counted():
    """Whether low is 1 or more; of those without one, only that with the fewest rows."""
    assert dp_feat._worst([(9, 0), (5, 0), (6, 1), (7, 2)]) == [(5, 0), (6, 1), (7, 2)]


def tilted(tilt: float, log_scale: float, pointwise: float = 0.0) -> composition.GridLosses:
    return composition.GridLosses(0.01, 100, np.full(400, 1 / 400), 0.0, tilt, log_scale, pointwise)


def test_tilted_masses_are_taken_back():
    losses = 0.01 * np.arange(100, 500)
    for tilt, log_scale in ((1.0, 0.0), (0.0, 1.0), (2.0, 0.5)):
        masses = np.exp(log_scale - tilt * losses) / 400
        expected = float(masses @ np.maximum(0, 1 - np.exp(2.0 - losses)))
        assert tilted(tilt, log_scale).delta(2.0) == pytest.approx(expected, rel=1e-12)


def test_an_error_at_each_mass_counts_at_each():
    """A loss above epsilon weighs up to 1, less by the tilt with each step."""
    at_each = float(np.exp(-0.01 * np.arange(300)).sum())
    error = tilted(1.0, 2.0, pointwise=1e-6).error(2.0) - tilted(1.0, 2.0).error(2.0)
    assert at_each * 1e-6 <= error <= 1.1e-6 * at_each


def test_a_mass_that_is_tilted_by_nothing_is_rounded_too():
    assert composition.tilt_rounding(0.0) > 2 * composition.ROUND_OFF


def test_a_plain_and_a_truncated_count_compose_as_they_are():
    """Truncation makes outcomes that only one neighbour has, and the composition must see them."""
    for epsilon, low in ((None, 0), (Fraction(2), truncation(60, Fraction(2))[0])):
        release = CountProtection(5, epsilon).distribution_for((60, 80), 60, 1e-6, colluding=True)
        expected = binomial_distribution(60, low)
        assert np.array_equal(release.distribution.masses, expected.masses)
        assert release.n == 5
    assert low > 0
