"""What the filters admit, against an accountant of its own (tests/exact_losses.py)."""

import math
from dataclasses import replace
from fractions import Fraction
from functools import cache, reduce
from itertools import combinations_with_replacement

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcore.accounting.concentrated import Concentrated
from dpcore.accounting.filters import NO_LOSS, Loss, PrivacyLimit, total_loss
from dpcore.accounting.noise_shares import LaplaceShares
from dpcore.accounting.protection import LaplaceProtection
from tests.exact_losses import NOTHING, Exact, gaussian, laplace_batch, moved, randomized_response
from tests.examples import examples


def laplace_charge(scale, l1, largest):
    return LaplaceProtection("record", 2, LaplaceShares(scale, 2), l1, largest).loss(1000, Fraction(1, 10**6))


def test_the_accountant_knows_what_is_known():
    # Optimal composition of equal epsilons, theorem 3.3 of Kairouz, Oh and Viswanath: at (k - 2 i) epsilon,
    # sum over l < i of C(k, l) (e^((k-l) e) - e^((k-2i+l) e)) / (1 + e^e)^k.
    k, e = 5, 0.3
    several = reduce(Exact.__add__, [randomized_response(e, 1e-3)] * k)
    for i in range(k // 2 + 1):
        terms = (math.comb(k, n) * (math.exp((k - n) * e) - math.exp((k - 2 * i + n) * e)) for n in range(i))
        known = 1 - (1 - 1e-3) ** k * (1 - sum(terms) / (1 + math.exp(e)) ** k)
        assert several.delta((k - 2 * i) * e) == pytest.approx(known, rel=1e-9)
    # Two Gaussians are one, and the masses of a moved integer are those of all integers.
    assert (gaussian(0.3) + gaussian(0.4)).delta(1) == pytest.approx(gaussian(0.5).delta(1))
    z, t, shift = np.arange(-400, 401), 2.5, 3
    p, other = (np.exp(-np.abs(z - at) / t) * math.tanh(1 / (2 * t)) for at in (0, shift))
    for epsilon in (0.0, 0.3, 1.0):
        direct = float(np.maximum(p - math.exp(epsilon) * other, 0).sum())
        assert moved(shift, t).delta(epsilon) == pytest.approx(direct, abs=1e-9)


@pytest.mark.parametrize(("values", "is_admitted", "true"), [
    (1, False, 1.54e-2), (2, False, 3.89e-3), (3, False, 9.74e-4), (4, False, 2.44e-4), (5, True, 6.10e-5),
    (8, True, 9.54e-7),
])  # fmt: skip
def test_two_laplace_batches_of_a_quarter_within_a_limit_of_045(values, is_admitted, true):
    """The simulation's case: epsilon 0.25 twice within (0.45, 1e-3). It is within the limit where it is admitted.

    A batch of one value is not: it may be randomized response. A record moves each of several values by at most 1, and
    each of them costs its part of the epsilon.
    """
    limit, scale = PrivacyLimit(Fraction(45, 100), Fraction(1, 1000)), Fraction(values) / Fraction(1, 4)
    charge = laplace_charge(scale, values, 1)
    assert charge.epsilon == Fraction(1, 4)
    assert limit.admits(charge.times(2)) is is_admitted
    found = (laplace_batch([1] * values, float(scale)) + laplace_batch([1] * values, float(scale))).delta(0.45)
    assert found == pytest.approx(true, rel=0.01)
    assert found <= 1e-3 or not is_admitted
    # What is only known to be pure is never admitted: the optimal composition's delta is 0.0154.
    assert not limit.admits(Loss.of_epsilon(Fraction(1, 4), Fraction(0)).times(2))
    assert (randomized_response(0.25) + randomized_response(0.25)).delta(0.45) == pytest.approx(0.0154, rel=0.01)


@pytest.mark.parametrize("scale", ["1/2", "3", "12"])
def test_a_batch_reveals_most_where_its_charge_says(scale):
    """However a record moves the values, by 6 in total and 2 each, two batches reveal no more than is admitted."""
    t = Fraction(scale)
    charge = laplace_charge(t, 6, 2).times(2)
    ways = {
        tuple(sorted(shift for shift in shifts if shift))
        for shifts in combinations_with_replacement(range(3), 6)
        if sum(shifts) <= 6
    }
    batches = [laplace_batch(way, float(t)) for way in ways]
    for delta in (1e-2, 1e-4, 1e-6):
        # About the least limit that admits both; its orders are its own.
        least = PrivacyLimit(Fraction(1), Fraction(delta)).spent(charge)
        limit = PrivacyLimit(Fraction(least) * Fraction(101, 100), Fraction(delta))
        assert limit.admits(charge)
        assert max((each + each).delta(least) for each in batches) <= delta


RELEASES = st.one_of(
    st.tuples(st.just("pure"), st.sampled_from(["1/8", "1/4", "1/2", "1"])),
    st.tuples(st.just("approximate"), st.sampled_from(["1/8", "1/4", "1/2"]), st.sampled_from(["1e-3", "1e-6"])),
    st.tuples(st.just("laplace"), st.integers(1, 5), st.sampled_from(["1/8", "1/4", "1/2", "1"])),
    st.tuples(st.just("gaussian"), st.sampled_from(["1/16", "1/8", "1/4", "1/2"])),
)


def charged(release):
    """What the ledger charges, and the exact loss."""
    match release:
        case ("pure", epsilon):
            return Loss.of_epsilon(Fraction(epsilon), Fraction(0)), randomized_response(float(Fraction(epsilon)))
        case ("approximate", epsilon, delta):
            known = Fraction(epsilon), Fraction(delta)
            return Loss.of_epsilon(*known), randomized_response(*map(float, known))
        case ("laplace", values, epsilon):
            scale = values / Fraction(epsilon)
            return laplace_charge(scale, values, 1), laplace_batch([1] * values, float(scale))
        case ("gaussian", mu):
            exact = Fraction(mu)
            return Loss.of_concentrated(Concentrated(exact**2 / 2), Fraction(1, 10**6)), gaussian(float(exact))


@pytest.mark.more
@settings(max_examples=examples(40, 200), deadline=None)
@given(
    st.lists(RELEASES, min_size=1, max_size=6),
    st.sampled_from(["1e-2", "1e-3", "1e-5"]),
    st.sampled_from(["1/4", "0.45", "1", "2"]),
    st.booleans(),
)
def test_no_admitted_mixture_exceeds_its_limit(releases, delta, epsilon, earlier):
    """Of pure, approximate, Laplace and Gaussian releases; at a given limit, and at the least that is shown to do."""
    pairs = [charged(release) for release in releases]
    total = total_loss([(loss, 1) for loss, _ in pairs])
    total = replace(total, is_earlier=earlier)
    exact = reduce(Exact.__add__, (each for _, each in pairs), NOTHING)
    limit = PrivacyLimit(Fraction(epsilon), Fraction(delta))
    margin = 1e-12
    if limit.admits(total):
        assert exact.delta(float(limit.epsilon)) <= float(limit.delta) * (1 + 1e-9) + margin
    # The shown figure is an upper bound at the limit's delta too, whether or not it is within the limit.
    if math.isfinite(spent := limit.spent(total)):
        assert exact.delta(spent) <= float(limit.delta) * (1 + 1e-9) + margin


# All losses are multiples of 1/8.
MENU = {
    "small": (Loss.of_epsilon(Fraction(1, 8), Fraction(0)), randomized_response(0.125)),
    "large": (Loss.of_epsilon(Fraction(1, 2), Fraction(0)), randomized_response(0.5)),
    "approximate": (Loss.of_epsilon(Fraction(1, 4), Fraction("2e-3")), randomized_response(0.25, 2e-3)),
    "batch": (laplace_charge(Fraction(8), 3, 1), laplace_batch([1] * 3, 8.0)),
}


@pytest.mark.parametrize(("epsilon", "delta"), [("1", "1e-2"), ("1", "5e-2"), ("1.2", "2e-1"), ("2", "1e-2")])
def test_no_run_that_chooses_by_the_likelihood_ratio_exceeds_its_limit(epsilon, delta):
    """The best of all strategies: after each answer, the release that makes delta largest among those admitted."""
    limit = PrivacyLimit(Fraction(epsilon), Fraction(delta))
    target = float(limit.epsilon)

    @cache
    def admitted(counts):
        total = sum((loss.times(n) for (loss, _), n in zip(MENU.values(), counts, strict=True) if n), NO_LOSS)
        return limit.admits(total)

    @cache
    def most(counts, eighths):
        """The largest E[(1 - e^(epsilon - L))_+] from here on."""
        best = -math.expm1(min(0.0, target - eighths / 8))
        for place, (_, exact) in enumerate(MENU.values()):
            then = tuple(n + (at == place) for at, n in enumerate(counts))
            if not admitted(then):
                continue
            finite = sum(
                mass * most(then, eighths + round(8 * loss))
                for loss, mass in zip(exact.losses.tolist(), exact.masses.tolist(), strict=True)
            )
            best = max(best, exact.infinite + (1 - exact.infinite) * finite)
        return best

    found = most((0,) * len(MENU), 0)
    assert 0 < found <= float(limit.delta)
