"""What an approval of several queries lets through: a training up to its whole epsilon, whatever is rounded."""

from fractions import Fraction

import pytest

from dpcore.accounting.noise_shares import IntegerNoise, smallest_share
from dpcore.accounting.protection import loss_of
from parties.ledger.approvals import NotCoveredError, Use, check_cost
from parties.ledger.charges import RECORD, Charge
from parties.ledger.limits import Event

DELTA = Fraction(1, 10**6)


def charge(epsilon: Fraction, part: Fraction, scale: int) -> Charge:
    """The charge of a round with the least noise that keeps its part of epsilon, as a learner chooses it."""
    squared = Fraction(scale) ** 2 / part
    noise = IntegerNoise(smallest_share(squared, 2, 134, epsilon, DELTA), 2, 134)
    return Charge(((RECORD, loss_of(noise.distribution(squared * part), DELTA)),), "lab")


# The larger the unit, the finer is the least noise: at 2^38 a share has 12 digits, and nothing of epsilon is left over.
@pytest.mark.parametrize(("bits", "epsilon"), [(30, Fraction(1, 50)), (30, Fraction(1)), (38, Fraction(8))])
def test_ten_rounds_use_up_the_epsilon_of_a_training_and_no_eleventh_fits(bits, epsilon):
    use = Use(b"a", (), 0, 3, epsilon, DELTA)
    parts = [Fraction(1, 4)] + [Fraction(1, 12)] * 9
    events: list[Event] = []
    for part in parts:
        one = charge(epsilon, part, 1 << bits)
        check_cost(use, events, one)
        events.append(Event(one, True, 0.0))
    with pytest.raises(NotCoveredError, match=f"cost more than epsilon {float(epsilon):g} at delta 1e-06; this one"):
        check_cost(use, events, charge(epsilon, Fraction(1, 10**4), 1 << bits))


def test_nothing_without_a_bound_for_records_is_let_through():
    with pytest.raises(NotCoveredError, match="has no bound for whole records"):
        check_cost(Use(b"a", (), 0, 3, Fraction(1), DELTA), [], Charge((), "lab"))
