"""`rado plan` for the designs with Gaussian noise."""

import json
import math
import re
from fractions import Fraction

import pytest

from dpcore.accounting.gaussian import gaussian_epsilon, subsampled_epsilon
from dpcore.accounting.noise_shares import moments_squared
from dpcore.records.clipping import Clip
from radofed.cli.entry_point import run

NOISE = {"share_sd", "honest_parties", "fraction_bits", "noise_sd", "product_noise_sd", "spread"}
SIZES = {"ciphertexts", "upload_bytes_per_party", "estimated_seconds", "slot_bits"}
FOUR = ("--rows", "40000", "--parties", "4", "--coordinates", "20", "--norm-bound", "3")


def data(capsys, *arguments):
    named = () if "--design" in arguments else ("--design", "dp-feat")
    code = run(["plan", *named, *arguments, "--format", "json"])
    found = json.loads(capsys.readouterr().out)
    assert (code, found["status"]) == (0 if found["data"]["feasible"] else 1, "ok")
    return found["data"]


def stated_is_tight(found, target):
    """The figure under collusion is what was asked for, and as much as was asked for."""
    assert found["feasible"]
    assert 0.999 * target < found["epsilon_if_others_collude"] <= target
    assert found["delta"] == 1e-6
    assert found.keys() >= NOISE | SIZES


@pytest.mark.more
@pytest.mark.parametrize(("extra", "p"), [((), Fraction(1, 2)), (("--support", "1/10"), Fraction(1, 10))])
def test_gaussian_noise_is_calibrated_for_the_honest_shares(capsys, extra, p):
    found = data(capsys, "--design", "gaussian", *FOUR, "--rados", "1000", "--epsilon", "1", *extra)
    stated_is_tight(found, 1)
    assert (found["scope"], found["honest_parties"], found["largest_rados"]) == ("record", 3, None)
    # A record of length 3 moves a rado by up to 6; the learner alone faces the noise of four, of
    # which three have that of two shares of the smallest cohort; colluders face two.
    share = found["share_sd"] / 2**16
    assert found["noise_sd"] == pytest.approx((8 / 3) ** 0.5 * share, rel=1e-4)
    assert found["spread"] == pytest.approx(float(40_000 * p * (1 - p)) ** 0.5)
    # With secret coins, by 3 in each rado.
    farthest, chance = (3, 1) if p == Fraction(1, 2) else (6, p)
    for shares, figure in ((8 / 3, "epsilon"), (2, "epsilon_if_others_collude")):
        assert found[figure] == pytest.approx(
            subsampled_epsilon(farthest / (share * shares**0.5), 1000, chance, 1e-6).upper, rel=1e-4
        )
    fewer = data(capsys, "--design", "gaussian", *FOUR, "--rados", "1000", "--epsilon", "1", "--honest", "4", *extra)
    assert fewer["share_sd"] == pytest.approx(found["share_sd"] / 2**0.5, rel=1e-5)
    assert fewer["epsilon"] == fewer["epsilon_if_others_collude"]


@pytest.mark.more
def test_noise_that_is_given_pays_for_so_many_rados(capsys):
    gaussian = ("--design", "gaussian", *FOUR, "--epsilon", "1", "--share-sd", "10000000")
    found = data(capsys, *gaussian, "--rados", "100")
    assert found["feasible"]
    most = found["largest_rados"]
    assert data(capsys, *gaussian, "--rados", str(most))["feasible"]
    beyond = data(capsys, *gaussian, "--rados", str(most + 1))
    assert (beyond["feasible"], beyond["largest_rados"], beyond["epsilon"]) == (False, most, None)
    assert f"at most {most} rados" in beyond["suggestion"]
    share = re.search(r"a share of (\d+) units", beyond["suggestion"])
    assert share
    assert data(capsys, *gaussian[:-1], share[1], "--rados", str(most + 1))["feasible"]
    assert 1 < beyond["smallest_epsilon"] < 1.01


def test_joint_noise_protects_one_column(capsys):
    sizes = ("--rows", "40000", "--parties", "4", "--rados", "1000")
    found = data(capsys, "--joint", *sizes, "--epsilon", "1")
    assert found["scope"] == "joint"
    assert found.keys() >= NOISE
    assert not found.keys() & SIZES
    assert found["epsilon_if_others_collude"] == pytest.approx(
        subsampled_epsilon(2**17 / (found["share_sd"] * 2**0.5), 1000, Fraction(1, 2), 1e-6).upper, rel=1e-6
    )
    category = data(capsys, "--joint", *sizes, "--epsilon", "1", "--source", "category", "--coordinates", "20")
    assert category["share_sd"] == pytest.approx(found["share_sd"] / 2**0.5, rel=1e-5)
    numeric = data(capsys, "--joint", *sizes, "--epsilon", "1", "--source", "numeric", "--fraction-bits", "20")
    assert numeric["noise_sd"] == pytest.approx(found["noise_sd"], rel=1e-5)


def test_joint_noise_needs_coordinates_for_categories_alone(capsys):
    joint = ("--rows", "4000", "--parties", "4", "--joint", "--epsilon", "1", "--rados", "50")
    bare = data(capsys, *joint)
    assert bare["feasible"]
    assert bare["share_sd"] == data(capsys, *joint, "--coordinates", "5")["share_sd"]
    assert "ciphertexts" not in bare


def test_a_party_too_small_for_its_set_is_refused_without_noise_too(capsys):
    small = ("--party-rows", "3,4000", "--coordinates", "5", "--rados", "9", "--design", "fixed-support")
    found = data(capsys, *small, "--support", "1/10")
    assert not found["feasible"]
    assert "between 0.333 and 0.667" in found["suggestion"]
    assert data(capsys, *small, "--support", "1/3")["feasible"]


def test_weak_noise_is_refused_with_what_the_epsilon_needs(capsys):
    weak = ("--design", "moments", *FOUR, "--epsilon", "1")
    found = data(capsys, *weak, "--share-sd", "5")
    enough = re.search(r"at least (\d+) units; that gives an epsilon of 1$", found["suggestion"])
    assert enough
    assert data(capsys, *weak, "--share-sd", enough[1])["feasible"]


def test_a_noised_table_costs_the_same_for_all_rados_and_under_collusion(capsys):
    few, many = (
        data(capsys, "--design", "fixed-support", *FOUR, "--rados", n, "--epsilon", "2") for n in ("1", "9999")
    )
    stated_is_tight(few, 2)
    for figure in ("epsilon", "share_sd", "noise_sd"):
        assert few[figure] == many[figure]
    assert few["epsilon"] == few["epsilon_if_others_collude"]
    assert few["epsilon"] == pytest.approx(gaussian_epsilon(6 * 2**16 / few["share_sd"], 1e-6).upper, rel=1e-6)
    # Half of the rows are in a rado, each with its own noise.
    assert few["noise_sd"] == pytest.approx(few["share_sd"] / 2**16 * 20_000**0.5)
    assert run(["plan", "--design", "fixed-support", *FOUR, "--rados", "5"]) == 0
    assert "Warning: fixed-support rados without noise have no bound" in capsys.readouterr().out


def test_moments_are_one_gaussian(capsys):
    found = data(capsys, "--design", "moments", *FOUR, "--epsilon", "1", "--edge-weight", "2")
    stated_is_tight(found, 1)
    squared = moments_squared(Clip(Fraction(3), bias=True), 10, 5 * 2 * 2**10)
    mu = float(squared) ** 0.5 / (found["share_sd"] * 2**0.5)
    assert found["epsilon_if_others_collude"] == pytest.approx(gaussian_epsilon(mu, 1e-6).upper, rel=1e-6)
    # Of four parties that answer, three add what two of the smallest cohort's would.
    units = found["share_sd"] * math.sqrt(2 * 4 / 3)
    assert found["noise_sd"] == pytest.approx(units / (10 * 2**20), rel=1e-6)
    assert found["product_noise_sd"] == pytest.approx(units / (5 * 2**20), rel=1e-6)
    # 20 edges and 210 products, the bias square left out.
    slots = 3071 // found["slot_bits"]
    assert found["ciphertexts"] == -(-229 // (slots - 1)) + 1
    assert run(["plan", "--design", "moments", *FOUR, "--epsilon", "1"]) == 0
    text = capsys.readouterr().out
    assert "for one record, within the whole release" in text
    assert "to each sum of products" in text


@pytest.mark.more
def test_noise_that_does_not_fit_or_bounds_nothing_is_refused_with_what_works(capsys):
    gaussian = ("--design", "gaussian", *FOUR, "--rados", "100")
    weak = data(capsys, *gaussian, "--share-sd", "3")
    assert not weak["feasible"]
    enough = re.search(r"at least (\d+) units", weak["suggestion"])
    assert enough
    assert data(capsys, *gaussian, "--share-sd", enough[1])["feasible"]
    tiny = ("--design", "gaussian", *FOUR[:-1], "2000000000", "--rados", "100")
    large = data(capsys, *tiny, "--epsilon", "0.01")
    assert (large["feasible"], large["epsilon"]) == (False, None)
    allowed = re.search(r"allow an epsilon of (\S+)$", large["suggestion"])
    assert allowed
    assert data(capsys, *tiny, "--epsilon", allowed[1])["feasible"]
    small = data(capsys, "--party-rows", "3,4000", "--coordinates", "5", "--rados", "9", "--design", "gaussian",
                 "--support", "1/10", "--epsilon", "1")  # fmt: skip
    assert not small["feasible"]
    assert "between 0.333 and 0.667" in small["suggestion"]


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", ["0.000000001", "0.1", "3", "149"])
def test_calibrated_noise_is_never_refused_for_a_last_digit(capsys, epsilon):
    found = data(capsys, "--design", "gaussian", *FOUR, "--rados", "777", "--epsilon", epsilon)
    assert found["feasible"]
    assert Fraction(found["epsilon_if_others_collude"]) <= Fraction(epsilon)
