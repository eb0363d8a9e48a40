"""Gaussian noise counted exactly: against high precision, dp_accounting, simulation, and exact sums."""

import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.accounting import composition, gaussian, noise_shares
from dpcore.accounting.composition import DeltaTooSmallError, InfiniteEpsilonError, VoidEpsilonError
from dpcore.accounting.dp_feat import epsilon_for
from dpcore.accounting.gaussian import (
    WeakNoiseError,
    composed_shift,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    shift_distribution,
    subsampled_delta,
    subsampled_epsilon,
    subsampled_mu,
    subsampled_rados,
)
from dpcore.accounting.mixed import CountRelease, mixed_epsilon
from dpcore.accounting.noise_shares import IntegerNoise, log_ratio, root_up, smallest_share
from dpcore.errors import PlanError
from dpcore.numbers.distributions import TAIL_BITS, binomial_distribution

DELTA = Fraction(1, 10**6)


def true_delta(mu, epsilon):
    """Theorem 8 of Balle and Wang with sixty digits."""
    with mp.workdps(60):
        m, e = mp.mpf(mu), mp.mpf(epsilon)
        return mp.ncdf(m / 2 - e / m) - mp.exp(e) * mp.ncdf(-m / 2 - e / m)


def true_subsampled(mu, n, p, epsilon):
    with mp.workdps(60):
        q = mp.mpf(p.numerator) / p.denominator
        masses = (mp.binomial(n, k) * q**k * (1 - q) ** (n - k) for k in range(1, n + 1))
        return mp.fsum(
            mass * true_delta(mp.mpf(mu) * mp.sqrt(k), epsilon) for k, mass in zip(range(1, n + 1), masses, strict=True)
        )


class TestOneRelease:
    @pytest.mark.variants(12)
    @pytest.mark.parametrize("mu", [1e-6, 1e-3, 0.1, 0.5, 1.0, 3.0, 10.0, 16.0, 1e3])
    @pytest.mark.parametrize("epsilon", [0.0, 1e-8, 1e-3, 0.1, 1.0, 5.0, 30.0, 150.0])
    def test_delta_is_bracketed(self, mu, epsilon):
        found, true = gaussian_delta(mu, epsilon), true_delta(mu, epsilon)
        assert found.lower <= true <= found.upper
        if true > 1e-250 and mu > 1e-5:
            assert found.upper - found.lower < 1e-8 * true

    def test_delta_is_what_integration_says(self):
        mu, epsilon = 0.8, 0.7
        losing = mp.quad(
            lambda x: max(mp.npdf(x, mu) - mp.exp(epsilon) * mp.npdf(x), 0), [-5, mu / 2 + epsilon / mu, 9]
        )
        assert float(losing) == pytest.approx(gaussian_delta(mu, epsilon).upper, rel=1e-9)

    @pytest.mark.parametrize("mu", [0.01, 0.3, 1.0, 4.0])
    @pytest.mark.parametrize("delta", [1e-2, 1e-6, 1e-30])
    def test_epsilon_and_mu_invert_it(self, mu, delta):
        found = gaussian_epsilon(mu, delta)
        assert 0 <= found.lower <= found.upper
        assert gaussian_delta(mu, found.upper).upper <= delta
        if found.upper:
            assert found.upper - found.lower < 1e-8 * found.upper
            assert true_delta(mu, found.upper * (1 - 1e-6)) > delta
            assert gaussian_mu(found.upper, delta) == pytest.approx(mu, rel=1e-9)

    def test_the_classical_calibration_is_looser(self):
        # Dwork and Roth (2014), Theorem A.1: sigma = Delta sqrt(2 log(1.25/delta)) / epsilon.
        assert gaussian_mu(1, DELTA) > 1.1 / math.sqrt(2 * math.log(1.25e6))

    def test_what_bounds_nothing_is_refused(self):
        with pytest.raises(WeakNoiseError):
            gaussian_epsilon(30.0, DELTA)
        with pytest.raises(DeltaTooSmallError):
            gaussian_epsilon(1.0, 1e-101)
        for wrong in (
            lambda: gaussian_epsilon(1.0, 0),
            lambda: gaussian_epsilon(1.0, 1),
            lambda: gaussian_epsilon(1.0, math.nan),
            lambda: gaussian_epsilon(0.0, DELTA),
            lambda: gaussian_epsilon(math.inf, DELTA),
            lambda: gaussian_delta(1.0, -1.0),
            lambda: gaussian_mu(0, DELTA),
            lambda: gaussian_mu(math.nan, DELTA),
            lambda: subsampled_delta(1.0, 0, 0.5, 1.0),
            lambda: subsampled_delta(1.0, 5, 0, 1.0),
            lambda: subsampled_delta(1.0, 5, 1.5, 1.0),
            lambda: composed_shift([]),
            lambda: shift_distribution(1.0, slack=1.0),
            lambda: shift_distribution(1.0, slack=-1e-9),
        ):
            with pytest.raises(PlanError):
                wrong()

    def test_the_smallest_delta_is_counted_and_none_is_no_delta(self):
        assert gaussian.check_delta(1e-100) == gaussian.SMALLEST_DELTA
        for delta in (0, 1):
            with pytest.raises(PlanError, match="between 0 and 1"):
                gaussian.check_delta(delta)

    def test_the_largest_epsilon_is_admitted_and_no_larger_one(self):
        largest = composition.LARGEST_EPSILON
        assert gaussian._least(lambda epsilon: epsilon >= largest) == largest
        with pytest.raises(WeakNoiseError):
            gaussian._least(lambda epsilon: epsilon > largest)


class TestCoins:
    @pytest.mark.variants(12)
    @pytest.mark.parametrize(
        ("mu", "n", "p", "epsilon"),
        [
            (0.3, 1, Fraction(1, 2), 0.1),
            (0.3, 20, Fraction(1, 2), 1.0),
            (0.05, 200, Fraction(1, 3), 0.5),
            (1.0, 30, Fraction(1, 50), 3.0),
            (0.1, 60, Fraction(49, 50), 4.0),
        ],
    )
    def test_delta_is_bracketed(self, mu, n, p, epsilon):
        found, true = subsampled_delta(mu, n, p, epsilon), true_subsampled(mu, n, p, epsilon)
        assert found.lower <= true <= found.upper
        assert found.upper - found.lower < 1e-9 * true
        # The test detects a wrong coin or a wrong mu.
        for wrong in (
            subsampled_delta(mu * 0.99, n, p, epsilon),
            subsampled_delta(mu, n, p * Fraction(49, 50), epsilon),
        ):
            assert wrong.upper < true

    def test_a_sure_coin_is_one_gaussian(self):
        assert subsampled_epsilon(0.1, 25, 1, DELTA).upper == pytest.approx(
            gaussian_epsilon(0.5, DELTA).upper, rel=1e-9
        )
        # Half the coins cost less than all, and more than half of the squared shift for sure: delta is convex there.
        half = subsampled_epsilon(0.1, 100, Fraction(1, 2), DELTA)
        assert gaussian_epsilon(0.1 * math.sqrt(50), DELTA).upper < half.lower
        assert half.upper < 0.9 * gaussian_epsilon(1.0, DELTA).lower

    def test_agrees_with_dp_accounting(self):
        # The import takes a second.
        from dp_accounting.pld import privacy_loss_distribution

        mu, n, p = 0.2, 40, 0.5
        one = privacy_loss_distribution.from_gaussian_mechanism(1 / mu, value_discretization_interval=1e-4)
        # The coin is known: the loss is 0 with probability 1 - p, otherwise the Gaussian's.
        coin = one.compute_mixture(privacy_loss_distribution.identity(value_discretization_interval=1e-4), p)
        found = subsampled_epsilon(mu, n, p, 1e-6).upper
        assert coin.self_compose(n).get_epsilon_for_delta(1e-6) == pytest.approx(found, rel=2e-3)
        assert one.self_compose(n).get_epsilon_for_delta(1e-6) > 1.2 * found

    def test_agrees_with_a_simulation_of_flipped_labels(self):
        # Three rados of one coordinate; record 0 is (x, y) = (1, +1) or (1, -1), the rest is known. The signature is
        # known too: the record is in where sigma_0 = y. Its edge then is +1 or -1, so the shift is 2, given the coin.
        rng = np.random.default_rng(7)
        sigma, n, epsilon, trials = 2.5, 3, 0.8, 400_000
        coins = rng.random((trials, n)) < 0.5
        noise = rng.normal(0, sigma, (trials, n))
        outcome = coins * 1.0 + noise
        log_ratio_of_pair = (((outcome + coins) ** 2 - (outcome - coins) ** 2) / (2 * sigma**2)).sum(axis=1)
        gains = np.clip(1 - np.exp(epsilon - log_ratio_of_pair), 0, None)
        true = subsampled_delta(2 / sigma, n, 0.5, epsilon).upper
        spread = gains.std() / math.sqrt(trials)
        assert abs(gains.mean() - true) < 4 * spread
        for wrong in (subsampled_delta(2 / sigma, n, 0.45, epsilon), subsampled_delta(1.9 / sigma, n, 0.5, epsilon)):
            assert abs(gains.mean() - wrong.upper) > 6 * spread

    @pytest.mark.parametrize(("n", "p"), [(1, Fraction(1, 2)), (100, Fraction(1, 2)), (10_000, Fraction(1, 7))])
    def test_calibration_ends_at_the_target(self, n, p):
        mu = subsampled_mu(n, p, 1, DELTA)
        assert subsampled_delta(mu, n, p, 1.0).upper <= DELTA < subsampled_delta(mu * 1.0001, n, p, 1.0).lower
        assert subsampled_epsilon(mu, n, p, DELTA).upper <= 1
        assert subsampled_rados(mu, p, 1, DELTA) == n

    @pytest.mark.parametrize("n", [1, 2, 3])
    def test_the_epsilon_of_few_coins_is_that_of_all_their_outcomes(self, n):
        found = subsampled_epsilon(0.8, n, Fraction(1, 2), DELTA)
        assert true_subsampled(0.8, n, Fraction(1, 2), found.lower) > DELTA
        assert true_subsampled(0.8, n, Fraction(1, 2), found.upper) <= DELTA
        assert 0 < found.upper - found.lower < 1e-9

    def test_a_number_of_rados_whose_stated_epsilon_is_just_beyond_the_limit_is_lowered_by_one(self):
        low, high = 0.0, 1.0
        while low < (middle := (low + high) / 2) < high:
            within = shift_distribution(middle, 7)._delta_upper(0.7) <= 1e-6
            low, high = (middle, high) if within else (low, middle)
        assert 0.7 < subsampled_epsilon(low, 7, 1, 1e-6).upper < 0.7 + 1e-11
        assert subsampled_rados(low, 1, 0.7, 1e-6) == 6
        assert subsampled_rados(low * (1 - 1e-9), 1, 0.7, 1e-6) == 7

    def test_a_delta_above_the_coin_needs_no_noise(self):
        assert subsampled_mu(1, Fraction(1, 10), 1, 0.2) > 1e15

    @pytest.mark.more
    def test_the_most_rados_is_the_last_that_fits(self):
        most = subsampled_rados(0.01, Fraction(1, 2), 2, DELTA)
        assert (
            subsampled_epsilon(0.01, most, 0.5, DELTA).upper <= 2 < subsampled_epsilon(0.01, most + 1, 0.5, DELTA).lower
        )
        for mu in (10.0, 40.0):
            assert subsampled_rados(mu, 0.5, Fraction(1, 10), DELTA) == 0
        assert subsampled_rados(1e-9, 0.5, 1, DELTA) == gaussian.MOST_RELEASES

    @given(
        st.floats(1e-4, 2),
        st.integers(1, 10_000),
        st.fractions(Fraction(1, 1000), Fraction(999, 1000)),
        st.floats(0, 9),
    )
    def test_brackets_are_ordered_and_monotone(self, mu, n, p, epsilon):
        found = subsampled_delta(mu, n, p, epsilon)
        assert 0 <= found.lower <= found.upper <= 1
        assert subsampled_delta(mu * 1.1, n, p, epsilon).upper >= found.lower
        assert subsampled_delta(mu, n + 1, p, epsilon).upper >= found.lower
        assert subsampled_delta(mu, n, p, epsilon + 0.1).lower <= found.upper


class TestSeveral:
    def test_a_sum_of_squared_shifts_is_rounded_outwards(self):
        generator = np.random.default_rng(8)
        for _ in range(200):
            parts = [shift_distribution(mu) for mu in generator.exponential(size=5)]
            found = composed_shift(parts)
            exact = sum(Fraction(part.upper[0]) for part in parts)
            assert Fraction(found.lower[0]) <= exact <= Fraction(found.upper[0]) <= exact * (1 + Fraction(1, 2**48))

    def test_gaussians_add_their_squares(self):
        found = composed_shift([shift_distribution(0.3), shift_distribution(0.4)]).epsilon(DELTA)
        assert found.lower <= gaussian_epsilon(0.5, DELTA).upper <= found.upper * (1 + 1e-12)
        assert found.upper < gaussian_epsilon(0.5, DELTA).upper * (1 + 1e-9)

    @pytest.mark.more
    def test_equal_coins_are_more_rados(self):
        whole = subsampled_epsilon(0.02, 3000, 0.5, DELTA)
        found = composed_shift(
            [
                shift_distribution(0.02, 1000, 0.5),
                shift_distribution(0.02, 1800, 0.5),
                shift_distribution(0.02, 200, 0.5),
            ]
        )
        bracket = found.epsilon(DELTA)
        assert bracket.lower <= whole.lower
        assert whole.upper <= bracket.upper * (1 + 1e-12)
        assert bracket.upper - bracket.lower < 0.01 * bracket.upper
        assert subsampled_epsilon(0.02, 3100, 0.5, DELTA).lower > bracket.upper

    def test_both_ends_of_a_shift_scale_with_its_square(self):
        scaled = shift_distribution(0.5).scaled(3.0)
        assert scaled.lower == scaled.upper == pytest.approx(2.25)

    def test_what_a_binomial_leaves_out_is_counted(self):
        assert shift_distribution(0.1, 5000, 0.3).trimmed >= 2.0**-TAIL_BITS

    def test_binning_spends_no_atoms_on_light_tails(self):
        """The counts that are kept reach 23 standard deviations from their mean; all but 1e-40 is within 14."""
        distribution = shift_distribution(1.0, 20_000, 0.5)
        coarse = distribution.binned(40)
        assert distribution.lower.min() < 8500 < coarse.lower.min()
        assert coarse.upper.max() < 11_500 < distribution.upper.max()

    def test_a_delta_above_twice_what_is_cut_is_counted(self):
        distribution = shift_distribution(0.1, 5000, 0.3).binned(40)
        assert 0 < distribution.epsilon(2.1 * distribution.trimmed).upper < 150
        with pytest.raises(DeltaTooSmallError):
            distribution.epsilon(2 * distribution.trimmed)

    def test_a_shift_of_which_little_is_known_has_no_lower_end(self):
        vague = gaussian.ShiftDistribution(np.array([4e-4]), np.array([1.0]), np.ones(1))
        assert vague.epsilon(0.01).lower == 0

    def test_few_atoms_stay_as_they_are(self):
        distribution = shift_distribution(0.3, 40, Fraction(1, 3))
        assert distribution.binned(len(distribution.masses)) is distribution

    def test_binning_keeps_the_true_distribution_inside(self):
        distribution = shift_distribution(0.1, 5000, 0.3)
        coarse = distribution.binned(40)
        assert len(coarse.masses) <= 40
        assert coarse.lower @ coarse.masses <= distribution.upper @ distribution.masses <= coarse.upper @ coarse.masses
        assert (
            coarse.delta(1.0).lower
            <= distribution.delta(1.0).lower
            <= distribution.delta(1.0).upper
            <= coarse.delta(1.0).upper
        )

    def test_a_count_and_a_gaussian_by_brute_force(self):
        # One count of 30 rows and one Gaussian: delta is the mean over k of the Gaussian's at epsilon - loss(k).
        distribution, mu, delta = binomial_distribution(30), 0.7, 1e-3
        found = mixed_epsilon([CountRelease(distribution, 1)], [shift_distribution(mu)], delta)

        def both(epsilon):
            parts = (
                mass * true_delta(mu, epsilon - loss)
                for mass, loss in zip(distribution.masses[1:], distribution.losses, strict=True)
            )
            return distribution.masses[0] + sum(parts)

        assert both(found.lower) >= delta >= both(found.upper)
        assert found.upper - found.lower < 0.01 * found.upper

    @pytest.mark.more
    def test_a_mixture_is_within_one_percent(self):
        counts = [CountRelease(binomial_distribution(20_000), 1000), CountRelease(binomial_distribution(4177), 10)]
        found = mixed_epsilon(counts, [shift_distribution(0.05, 1000, 0.5), shift_distribution(0.2)], DELTA)
        assert found.upper - found.lower < 0.01 * found.upper
        # The counts alone are nearly Gaussian, of mu^2 = 4 n / m.
        near = composed_shift(
            [
                shift_distribution(math.sqrt(0.2 + 40 / 4177)),
                shift_distribution(0.05, 1000, 0.5),
                shift_distribution(0.2),
            ]
        )
        assert found.upper == pytest.approx(near.epsilon(DELTA).upper, rel=0.01)

    def test_one_kind_alone_is_what_its_own_module_says(self):
        own = epsilon_for([4177], 100, None, DELTA)
        alone = mixed_epsilon([CountRelease(binomial_distribution(4177), 100)], [], DELTA)
        mixed = mixed_epsilon([CountRelease(binomial_distribution(4177), 100)], [shift_distribution(1e-7)], DELTA)
        for found in (alone, mixed):
            assert found.lower <= own.upper
            assert own.lower <= found.upper < 1.01 * own.upper
        assert mixed_epsilon([], [shift_distribution(0.5)], DELTA).upper == gaussian_epsilon(0.5, DELTA).upper

    def test_what_cannot_be_composed_is_refused(self):
        with pytest.raises(InfiniteEpsilonError):
            mixed_epsilon([CountRelease(binomial_distribution(10), 1)], [shift_distribution(0.5)], DELTA)
        with pytest.raises(VoidEpsilonError):
            mixed_epsilon([CountRelease(binomial_distribution(1000), 40_000)], [shift_distribution(8.0)], DELTA)
        with pytest.raises(DeltaTooSmallError):
            mixed_epsilon([CountRelease(binomial_distribution(4177), 10_000)], [shift_distribution(0.5)], 1e-35)
        with pytest.raises(PlanError):
            mixed_epsilon([], [], DELTA)


class TestGrids:
    @pytest.mark.parametrize("n", [1, 2, 7, 40])
    def test_a_window_holds_all_but_what_is_cut(self, n):
        # Skewed, not quite of mass 1, and with a heavy tail that a Gaussian's window would miss.
        pieces = np.random.default_rng(3).dirichlet(np.linspace(3, 0.1, 60)) * 0.999
        pieces = np.concatenate([pieces, np.zeros(400), [1e-5]])
        direct = pieces
        for _ in range(n - 1):
            direct = np.convolve(direct, pieces)
        for cut in (1e-3, 1e-9):
            first, found, error = composition._self_convolved(pieces, n, cut)
            inside = direct[first : first + len(found)]
            assert direct.sum() - inside.sum() <= cut
            assert len(inside) == len(found)
            assert error < 1e-13
            assert np.abs(found - inside).sum() <= cut + len(found) * error
        if n == 40:
            assert len(composition._self_convolved(pieces, n, 1e-9)[1]) < len(direct) / 4

    def test_losses_beyond_any_exponential_are_infinite(self):
        found = composition.GridLosses(1.0, 0, np.array([0.5, *[0.0] * 998, 0.5]), 0.0)
        assert found.epsilon(0.4) > 150
        assert found.epsilon(0.5) == 0
        assert found.delta(10**9) == 0


def masses_of_sum(s, shares, reach):
    """Exact masses of the sum of shares of N_Z(0, s^2) at -reach..reach, in forty digits."""
    wide = range(-reach, reach + 1)
    one = [mp.exp(-mp.mpf(z * z) / (2 * s * s)) for z in wide]
    total = mp.fsum(one)
    one = [mass / total for mass in one]
    result = one
    for _ in range(shares - 1):
        result = [
            mp.fsum(result[i] * one[z - i + reach] for i in range(max(0, z - reach), min(2 * reach, z + reach) + 1))
            for z in range(2 * reach + 1)
        ]
    return dict(zip(wide, result, strict=True))


class TestIntegerNoise:
    @pytest.mark.parametrize(("s", "shares"), [(3, 1), (3, 2), (3, 4), (4, 3)])
    def test_the_sum_of_shares_is_as_close_as_claimed(self, s, shares):
        with mp.workdps(120):
            masses = masses_of_sum(s, shares, 75)
            bound, sigma = log_ratio(s, shares, noise_shares.ROUNDING_VARIANCE), s * mp.sqrt(shares)
            for z in range(-12, 13):
                # The rounded continuous noise is within tau_rho of phi_sigma.
                ratio = abs(mp.log(masses[z] / mp.npdf(z, 0, sigma)))
                assert ratio < bound
            assert 0 < bound < 1e-30

    @pytest.mark.parametrize("shares", [1, 2, 3])
    def test_a_small_share_breaks_the_small_bound_but_not_its_own(self, shares):
        with mp.workdps(40):
            masses = masses_of_sum(mp.mpf("0.5"), shares, 12)
            worst = max(abs(mp.log(masses[z] / mp.npdf(z, 0, mp.sqrt(shares) / 2))) for z in range(-3, 4))
        assert worst > 1e20 * log_ratio(3, shares, 4)
        assert worst < log_ratio(0.5, shares, 4)

    @pytest.mark.parametrize(("shares", "moves"), [(1, (6, 0)), (2, (3, 3)), (3, (5, 1))])
    def test_delta_of_integer_noise_is_below_what_is_stated(self, shares, moves):
        noise = IntegerNoise(3, shares, 2)
        distribution = noise.distribution(sum(move * move for move in moves))
        masses = {z: float(mass) for z, mass in masses_of_sum(3, shares, 45).items()}
        for epsilon in (0.2, 1.0, 2.0):
            exact = sum(
                max(masses[x] * masses[y] - math.exp(epsilon) * masses[x - moves[0]] * masses[y - moves[1]], 0)
                for x in range(-38, 39)
                for y in range(-38, 39)
            )
            stated = distribution.delta(epsilon).upper
            assert exact <= stated
            # The only loss is the 4 taken from the variance, except for the corner that a lattice cuts.
            assert exact > 0.9 * gaussian_delta(math.hypot(*moves) / noise.sigma, epsilon).lower
            too_much = IntegerNoise(4, shares, 2).distribution(sum(move * move for move in moves)).delta(epsilon).upper
            assert too_much < exact

    def test_the_slack_is_added(self):
        bare, slacked = shift_distribution(0.5), shift_distribution(0.5, slack=1e-4)
        assert slacked.delta(1.0).upper == pytest.approx(bare.delta(1.0 - 2e-4).upper * math.exp(1e-4) + 2e-4, rel=1e-9)
        assert slacked.epsilon(1e-2).upper > bare.epsilon(1e-2).upper
        assert composed_shift([slacked, slacked]).slack == 2e-4
        assert shift_distribution(0.5, slack=0.4).delta(0.0).upper == 1
        noise = IntegerNoise(3, 4, 10)
        assert noise.distribution(1).slack == noise.slack == 10 * log_ratio(3, 4, 4) > 0
        counts = [CountRelease(binomial_distribution(4177), 10)]
        assert mixed_epsilon(counts, [slacked], 1e-2).upper > 1.0001 * mixed_epsilon(counts, [bare], 1e-2).upper

    @pytest.mark.parametrize("squared", [Fraction(1, 3), 1, 36, 4 * (7 << 16) ** 2 * 10**6, Fraction(10**40, 7)])
    def test_mu_is_rounded_up(self, squared):
        noise = IntegerNoise(1000, 3, 10)
        found = Fraction(noise.mu(squared))
        true_square = Fraction(squared) / (3 * 10**6 - 4)
        assert true_square <= found**2 <= true_square * (1 + Fraction(1, 2**48))
        if squared >= 1:
            assert noise.mu(squared) <= root_up(true_square) * (1 + 1e-6)

    @pytest.mark.variants(3)
    @pytest.mark.parametrize(
        ("n", "p", "shares"), [(1, 1, 1), (1000, Fraction(1, 2), 3), (10_000, Fraction(1, 3), 1000)]
    )
    @pytest.mark.parametrize("epsilon", [Fraction(1, 10), 1, 10])
    def test_the_smallest_share_is_the_smallest(self, n, p, shares, epsilon):
        squared = 4 * (3 << 12) ** 2
        share = smallest_share(squared, shares, 1000, epsilon, DELTA, n, p)
        assert IntegerNoise(share, shares, 1000).distribution(squared, n, p).epsilon(DELTA).upper <= epsilon
        assert IntegerNoise(share - 1, shares, 1000).distribution(squared, n, p).epsilon(DELTA).upper > epsilon

    def test_a_share_that_is_too_weak_for_any_bound_is_not_the_smallest(self):
        share = smallest_share(10**6, 1, 1, 150, DELTA)
        with pytest.raises(WeakNoiseError):
            IntegerNoise(share - 1, 1, 1).distribution(10**6).epsilon(DELTA)
        assert IntegerNoise(share, 1, 1).distribution(10**6).epsilon(DELTA).upper <= 150

    def test_without_coins_a_record_enters_one_rado(self):
        assert smallest_share(10**9, 1, 1, 1, DELTA) == smallest_share(10**9, 1, 1, 1, DELTA, 1, 1)
        noise = IntegerNoise(1000, 1, 1)
        assert noise.distribution(10**6).upper.tolist() == noise.distribution(10**6, 1, 1).upper.tolist()

    def test_shares_below_three_and_other_nonsense_are_refused(self):
        assert smallest_share(1, 1, 1, 10, DELTA) == 3
        assert IntegerNoise(1 << 48, 1, 1).sigma == 1 << 48
        for wrong in (
            lambda: IntegerNoise(2, 1, 1),
            lambda: IntegerNoise((1 << 48) + 1, 1, 1),
            lambda: IntegerNoise(3, 0, 1),
            lambda: IntegerNoise(3, 1, 0),
            lambda: IntegerNoise(3, 1, 1).mu(0),
            lambda: smallest_share(10**60, 1, 1, 1, DELTA),
        ):
            with pytest.raises(PlanError):
                wrong()
        assert log_ratio(0.1, 2, 4) == math.inf

    def test_many_shares_are_counted_at_once(self):
        few, many = log_ratio(3, 65, 4), log_ratio(3, 100_000, 4)
        assert few <= many < 1e-30
        assert log_ratio(1, 65, 4) < log_ratio(1, 100_000, 4) < 1.1 * 100_000 / 65 * log_ratio(1, 65, 4)
        for shares in (2, 40, 65, 66, 67, 200):
            falls = [noise_shares._tau(j / (j + 1)) for j in range(1, shares)] + [noise_shares._tau(4)]
            exact = math.fsum(-math.log1p(-tau) for tau in falls) + shares * math.log1p(noise_shares._tau(1))
            # Beyond 64 a little more is counted.
            assert exact < log_ratio(1, shares, 4) < exact * (1 + (1e-8 if shares <= 65 else 0.01))

    def test_a_mean_within_factors_of_nothing_has_no_bound(self, monkeypatch):
        monkeypatch.setattr(noise_shares, "_tau", lambda square: 1.0)
        assert log_ratio(3, 2, 4) == math.inf

    def test_no_noise_before_rounding_has_no_bound(self):
        assert noise_shares._tau(0.0) == noise_shares._tau(1e-20) == math.inf
        assert noise_shares._tau(1e-3) < math.inf
