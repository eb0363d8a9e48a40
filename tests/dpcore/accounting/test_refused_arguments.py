"""Arguments for which the accounting has no bound."""

import math
from fractions import Fraction

import pytest

from dpcore.accounting.concentrated import conversion, laplace_curve
from dpcore.accounting.gaussian import shift_distribution
from dpcore.accounting.noise_shares import LaplaceShares, smallest_scale
from dpcore.accounting.protection import LaplaceProtection
from dpcore.errors import PlanError
from dpcore.queries.rados import RadosQuery
from dpcore.rados.designs import GaussianDesign
from dpcore.rados.designs.gaussian import RareInclusionError
from tests.dpcore.queries.test_protection import CLIP, SETTING


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda: conversion(Fraction(0), 1e-6), "give one above 1"),
        (lambda: shift_distribution(math.inf), "positive and finite"),
        (lambda: laplace_curve(Fraction(1), 1, 0), "give positive numbers"),
        (lambda: smallest_scale(1 << 50, Fraction(1)), "above 2\\^40 integer units"),
        (
            lambda: LaplaceProtection("record", 1, LaplaceShares(Fraction(10), 2), 1, 1).distribution(9, shares=1),
            "have more honest parties",
        ),
    ],
    ids=["order", "shift", "sensitivity", "scale", "shares"],
)
def test_what_bounds_nothing_is_refused(call, why):
    with pytest.raises(PlanError, match=why):
        call()


def test_no_charge_and_no_plan_lets_delta_pay_for_a_record_that_hardly_ever_enters():
    rows, delta = 10**7, Fraction(1, 10**6)
    protection = RadosQuery(3, GaussianDesign(CLIP, 3, Fraction(1, rows))).protection(SETTING)
    with pytest.raises(RareInclusionError):
        protection.loss(rows, delta)
    with pytest.raises(RareInclusionError):
        protection.distribution_for((rows,), rows, delta, colluding=False)
