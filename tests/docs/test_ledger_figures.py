"""What the documents state of the ledger's figures, by the code that computes them."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from dpcore.accounting.filters import Loss, PrivacyLimit
from dpcore.accounting.gaussian import gaussian_mu, shift_distribution
from dpcore.accounting.protection import loss_of
from dpcore.numbers.rationals import up

OPERATING = " ".join((Path(__file__).parents[2] / "docs" / "operating.md").read_text().split())
DELTA = Fraction(1, 10**5)
LIMIT = PrivacyLimit(Fraction(10), DELTA)


def gaussian(epsilon, delta):
    """The charge of an answer with Gaussian noise for this epsilon."""
    epsilon, delta = Fraction(epsilon), Fraction(delta)
    return loss_of(shift_distribution(gaussian_mu(epsilon, delta), 1, 1, 0.0), delta)


def test_the_figure_depends_on_the_limit():
    twenty = gaussian("0.2", "1e-6").times(20)
    at_four, at_less = (PrivacyLimit(Fraction(epsilon), DELTA) for epsilon in ("4", "1.22"))
    assert at_four.admits(twenty)
    assert at_less.admits(twenty)
    shown = [up(limit.spent(twenty)) for limit in (at_four, at_less)]
    assert (
        f"Twenty Gaussian answers of epsilon 0.2 at delta 1e-6 show {shown[0]} at a limit of 4 and {shown[1]} at one "
        "of 1.22, both at delta 1e-5." in OPERATING
    )
    # Both bound what 20 Gaussians of this mu reveal, which is what one of sqrt(20) mu does.
    together = shift_distribution(20**0.5 * gaussian_mu(Fraction("0.2"), Fraction("1e-6")), 1, 1, 0.0)
    assert together.epsilon(DELTA).upper < float(shown[1])


def test_the_figure_can_step_up_once():
    first, second = gaussian("3", "4e-6"), gaussian("0.01", "2e-6")
    before, after = LIMIT.spent(first), LIMIT.spent(first + second)
    assert after - before > 10 * LIMIT.spent(second)
    assert (
        f"After one Gaussian answer of epsilon 3 at delta 4e-6 it is {up(before)} at a limit of (10, 1e-5). Another "
        f"one of epsilon 0.01 at delta 2e-6 makes it {up(after)}." in OPERATING
    )
    # Once: the next one costs what it costs in the second sum.
    assert LIMIT.spent(first + second + second) - after <= LIMIT.spent(second)


def test_a_ledger_of_an_earlier_version_has_one_order():
    pure, fifty = Loss.of_epsilon(Fraction(2), Fraction(0)), gaussian("0.2", "1e-6").times(50)
    earlier = replace(fifty, is_earlier=True)
    added = [up(LIMIT.spent(held + pure) - LIMIT.spent(held)) for held in (earlier, fifty)]
    assert float(added[0]) > 2 > float(added[1])
    assert (
        f"one of epsilon 2 after fifty Gaussian answers as above adds {added[0]}, and in a ledger of this version "
        f"{added[1]}, both at (10, 1e-5)." in OPERATING
    )
    assert LIMIT.admits(earlier + pure)
