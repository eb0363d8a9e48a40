"""`rado plan`, as people and programs meet it."""

import json
import re
from fractions import Fraction
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from dpcore.accounting import dp_feat
from dpcore.accounting.composition import InfiniteEpsilonError
from learner.number_of_rados import most_rados
from radofed.cli.entry_point import run
from radofed.planning import design_cost
from radofed.planning.design_cost import MOST_LOOKED_FOR, PlanRequest, split_equally
from radofed.planning.designs import plan_cost, planned

ROOT = Path(__file__).resolve().parents[2]
POOL = ("--rows", "4177", "--parties", "1", "--rados", "100")
KEYS = {
    "feasible", "epsilon", "delta", "theorem_epsilon", "delta_per_rado", "epsilon_if_others_collude", "rados",
    "party_rows", "acceptance_rate", "largest_rados", "smallest_epsilon", "reason", "suggestion", "design", "split",
    "joint", "scope", "marginal_epsilon", "marginal_epsilon_if_others_collude", "unit", "assumptions", "warning",
    "choice", "coefficients_warning", "vanishing",
}  # fmt: skip
SIZES = {"ciphertexts", "upload_bytes_per_party", "estimated_seconds", "slot_bits", "fraction_bits"}


def plan(capsys, *arguments):
    named = () if "--design" in arguments else ("--design", "dp-feat")
    code = run(["plan", *named, *arguments, "--format", "json"])
    found = json.loads(capsys.readouterr().out)
    return code, found


def data(capsys, *arguments):
    code, found = plan(capsys, *arguments)
    assert (code, found["status"]) == (0 if found["data"]["feasible"] else 1, "ok")
    return found["data"]


def test_every_figure_is_there(capsys):
    found = data(capsys, *POOL, "--epsilon-per-rado", "0.5")
    assert set(found) == KEYS
    assert found["largest_rados"] is None
    # Truncation never lowers epsilon.
    assert 0.99 * found["epsilon"] < found["smallest_epsilon"] <= found["epsilon"]
    assert (found["scope"], found["joint"], found["marginal_epsilon"]) == ("marginal", False, None)
    assert found["acceptance_rate"] == pytest.approx(1, abs=1e-12)
    assert set(data(capsys, *POOL, "--coordinates", "20")) == KEYS | SIZES


@pytest.mark.more
def test_rows_are_split_as_equally_as_can_be(capsys):
    found = data(capsys, "--rows", "4177", "--parties", "10", "--rados", "100", "--epsilon-per-rado", "0.5")
    assert found["party_rows"] == [418] * 7 + [417] * 3
    # 1.42 for ten parties of 417 each; of 418, a window of one count more is admitted.
    assert found["epsilon"] == pytest.approx(1.42, rel=0.01)
    # A party of 418 rows truncates too much to be safe from the other nine, so it would refuse.
    assert (found["feasible"], found["epsilon_if_others_collude"]) == (False, None)
    free = data(capsys, "--rows", "4177", "--parties", "10", "--rados", "100")
    assert free["feasible"]
    assert free["epsilon_if_others_collude"] > 2 * free["epsilon"] > 2
    # Only the least counts of all ten parties at once reveal a record to the learner.
    one = [dp_feat.delta_per_rado(m, Fraction(1, 2)) for m in (418, 417)]
    assert found["delta_per_rado"] == pytest.approx(one[0] ** 7 * one[1] ** 3, rel=1e-9, abs=0)
    assert split_equally(7, 7) == (1,) * 7


@pytest.mark.more
def test_stated_parties_and_the_exact_split(capsys):
    stated = ("--party-rows", "1200,900,400", "--rados", "50", "--epsilon-per-rado", "0.5")
    local, exact = (data(capsys, *stated, "--split", split) for split in ("local", "exact"))
    assert local["party_rows"] == exact["party_rows"] == [1200, 900, 400]
    counted = dp_feat.account_of_exact_split([1200, 900, 400], 50, Fraction(1, 2), Fraction("1e-6"))
    assert exact["epsilon"] == counted.epsilon
    assert exact["epsilon_if_others_collude"] == counted.epsilon_if_others_collude
    assert exact["delta_per_rado"] == pytest.approx(dp_feat.delta_per_rado(2500, Fraction(1, 2)), rel=1e-9, abs=0)
    assert exact["acceptance_rate"] > local["acceptance_rate"]
    # A party draws its own signatures, or the coordinator divides one draw and is trusted with it.
    assert "every party draws its signatures" in local["assumptions"][0]
    assert "not for the coordinator" in exact["assumptions"][0]
    assert exact["assumptions"][1:] == local["assumptions"][1:]
    assert (local["unit"], local["scope"]) == ("one record's value of the sensitive coordinate", "marginal")
    assert 0 < local["acceptance_rate"] < 1


@pytest.mark.parametrize(("rows", "epsilon"), [(4177, "1"), (20, "3"), (569, "5/2"), (300, "100"), (10, "1")])
def test_largest_rados_is_the_last_that_fits(rows, epsilon):
    found = most_rados([rows], None, Fraction(epsilon), Fraction("1e-6"))
    assert found == 0 or dp_feat.epsilon_for([rows], found, None, 1e-6).upper <= Fraction(epsilon)
    try:
        assert dp_feat.epsilon_for([rows], found + 1, None, 1e-6).upper > Fraction(epsilon)
    except InfiniteEpsilonError:
        assert found < rows


def test_largest_rados_heeds_the_smallest_party():
    delta = Fraction("1e-6")
    assert most_rados([3000], None, Fraction(2), delta) > 10
    found = most_rados([22, 2978], None, Fraction(2), delta)
    assert 0 < found < most_rados([3000], None, Fraction(2), delta)
    dp_feat.account([22, 2978], found, None, delta)
    with pytest.raises(dp_feat.PlanError):
        dp_feat.account([22, 2978], found + 1, None, delta)


def test_a_total_to_stay_within(capsys):
    within = data(capsys, *POOL[:4], "--rados", "58", "--epsilon", "1")
    assert (within["feasible"], within["largest_rados"], within["theorem_epsilon"]) == (True, 58, None)
    assert within["epsilon"] <= 1
    beyond = data(capsys, *POOL[:4], "--rados", "59", "--epsilon", "1")
    assert (beyond["feasible"], beyond["largest_rados"], beyond["epsilon"]) == (False, 58, None)
    assert "at most 58 rados" in beyond["suggestion"]


@pytest.mark.more
def test_an_epsilon_alone_gives_the_number_of_rados(capsys):
    found = data(capsys, *POOL[:4], "--epsilon", "1")
    assert (found["feasible"], found["rados"], found["largest_rados"]) == (True, 58, 58)
    assert found["epsilon"] <= 1
    # As a query does, no more than are of use.
    ample = data(capsys, "--rows", "10000000", "--parties", "4", "--epsilon", "3")
    assert (ample["rados"], ample["feasible"]) == (1000, True)
    assert ample["largest_rados"] > 1000
    little = data(capsys, "--rows", "40", "--parties", "1", "--epsilon", "0.01")
    assert (little["feasible"], little["rados"], little["largest_rados"]) == (False, 1, 0)
    allowed = re.search(r"allow an epsilon of (\S+)$", little["suggestion"])
    assert allowed
    assert data(capsys, "--rows", "40", "--parties", "1", "--epsilon", allowed[1])["feasible"]
    assert run(["plan", "--design", "dp-feat", "--rows", "40", "--parties", "1", "--epsilon", "0.01"]) == 1
    printed = capsys.readouterr().out
    assert printed.startswith("1 rado of design dp-feat")
    assert "Within epsilon 0.01 there is no room for a rado." in printed


@pytest.mark.more
def test_what_is_suggested_works(capsys):
    pool = ("--rows", "4177", "--parties", "1", "--epsilon-per-rado", "0.3")
    found = data(capsys, *pool, "--rados", "100")
    fewer = re.search(r"ask for at most (\d+) rados", found["suggestion"])
    assert fewer
    assert data(capsys, *pool, "--rados", fewer[1])["feasible"]
    assert "without truncation" in found["suggestion"]
    assert data(capsys, *POOL)["feasible"]
    small = data(capsys, *POOL[:4], "--rados", "10000", "--delta", "1e-60")
    larger = re.search(r"a delta of (\S+)", small["suggestion"])
    assert larger
    assert data(capsys, *POOL[:4], "--rados", "10000", "--delta", larger[1])["feasible"]
    void = data(capsys, "--rows", "300", "--parties", "1", "--rados", "20000")
    fewer = re.search(r"ask for at most (\d+) rados", void["suggestion"])
    assert fewer
    assert data(capsys, "--rows", "300", "--parties", "1", "--rados", fewer[1])["feasible"]
    few = data(capsys, "--rows", "3", "--parties", "1", "--rados", "1")
    more = re.search(r"have at least (\d+) rows at each party", few["suggestion"])
    assert more
    assert data(capsys, "--rows", more[1], "--parties", "1", "--rados", "1")["feasible"]


def test_a_plan_that_only_collusion_spoils_says_so(capsys):
    found = data(capsys, "--party-rows", "10,4000", "--rados", "1")
    assert not found["feasible"]
    assert 0 < found["epsilon"] < found["rados"]
    assert found["epsilon_if_others_collude"] is None
    assert found["reason"].startswith("parties refuse it, since if the other parties collude with the learner")


def test_plain_has_no_bound(capsys):
    found = data(capsys, "--design", "plain", "--rows", "900", "--parties", "3", "--rados", "10")
    assert found["feasible"] is True
    assert all(found[key] is None for key in ("epsilon", "delta", "theorem_epsilon", "epsilon_if_others_collude"))
    assert run(["plan", "--design", "plain", "--rows", "900", "--parties", "3", "--rados", "10"]) == 0
    text = capsys.readouterr().out
    assert "Warning: plain rados have no bound" in text
    assert "coded -1/+1 is bounded" in text
    # Each single -1/+1 coordinate has the bound of DP-FEAT without truncation.
    counted = dp_feat.account([300] * 3, 10, None, Fraction("1e-6"))
    assert found["scope"] == "none"
    assert found["marginal_epsilon"] == counted.epsilon
    assert found["marginal_epsilon_if_others_collude"] == counted.epsilon_if_others_collude


@pytest.mark.more
def test_sizes(capsys):
    arguments = ("--rows", "4000", "--parties", "4", "--rados", "1000", "--coordinates", "100")
    found = data(capsys, *arguments)
    slots = 3071 // found["slot_bits"]
    assert found["slot_bits"] % 8 == 0
    # One more binds the total to the query.
    assert found["ciphertexts"] == -(-100_000 // (slots - 1)) + 1
    assert found["upload_bytes_per_party"] == found["ciphertexts"] * 768
    shorter = data(capsys, *arguments, "--key-bits", "2048")
    assert shorter["estimated_seconds"] < found["estimated_seconds"]
    many = data(capsys, *arguments[:4], "--design", "plain", "--rados", "1000000", "--coordinates", "1000")
    assert not many["feasible"]
    assert "ask for at most" in many["suggestion"]


def test_the_ciphertext_that_binds_the_total_counts(capsys):
    """Four were planned, and five sent."""
    found = data(capsys, "--design", "moments", "--party-rows", "1200,900,700,800", "--coordinates", "20",
                 "--epsilon", "1")  # fmt: skip
    assert (found["ciphertexts"], found["upload_bytes_per_party"]) == (5, 5 * 768)


def test_a_delta_that_no_query_can_state_is_refused(capsys):
    found = data(capsys, "--rows", "4000", "--parties", "4", "--rados", "10", "--delta", "1e-30")
    assert (found["feasible"], found["epsilon"]) == (False, None)
    assert found["reason"] == "a query states delta with at most 63 bits above and below the line"
    assert "choose a delta of 1e-18" in found["suggestion"]


def test_a_divided_draw_stays_within_an_epsilon_too(capsys):
    found = data(capsys, "--rows", "4000", "--parties", "3", "--epsilon", "1", "--split", "exact")
    assert (found["feasible"], found["rados"]) == (True, found["largest_rados"])
    beyond = data(capsys, "--rows", "4000", "--parties", "3", "--epsilon", "1", "--split", "exact", "--rados",
                  str(found["rados"] + 1))  # fmt: skip
    assert not beyond["feasible"]


def test_seconds_rest_on_what_was_measured():
    measured = json.loads((ROOT / "benchmarks/results/encryption.json").read_text())
    medians = {measure["what"]: measure["median"] for measure in measured["measures"]}
    setting = measured["setting"]
    per_ciphertext = 1e-6 * setting["values"] / setting["ciphertexts"][0]
    assert setting["key_bits"] == [design_cost.MEASURED_BITS]
    comb = "encrypt: packed, short exponent, comb"
    table_s = 1e-6 * setting["values"] * (medians[f"{comb}, its table built anew"] - medians[comb])
    # Machines differ; a slip of a unit is a thousand.
    for constant, figure in (
        (design_cost.ENCRYPT_S, per_ciphertext * medians[comb]),
        (design_cost.WITHOUT_TABLE_S, per_ciphertext * medians["encrypt: packed, r^n"]),
        (design_cost.ADD_CHECKED_S, per_ciphertext * medians["add: packed, and checked on arrival"]),
        (design_cost.DECRYPT_S, per_ciphertext * medians["decrypt: the exponentiations alone, 2 threads"]),
        (design_cost.TABLE_S, table_s),
    ):
        assert figure / 3 < constant < 3 * figure


def test_text_for_people(capsys):
    assert run(["plan", "--design", "dp-feat", *POOL, "--epsilon-per-rado", "0.5", "--coordinates", "20"]) == 0
    text = capsys.readouterr().out
    for words in ("for accounting only", "epsilon is at most 1.3", "alone would say 50", "admitted", "ciphertexts"):
        assert words in text
    assert (
        run(["plan", "--design", "dp-feat", "--rows", "4177", "--parties", "3", "--rados", "9", "--split", "exact"])
        == 0
    )
    text = capsys.readouterr().out
    assert "in simulation only" in text
    assert "if the other parties collude with the learner" in text


@pytest.mark.parametrize(
    "arguments",
    [
        [*POOL, "--delta", "0"],
        [*POOL, "--delta", "-1e-6"],
        [*POOL, "--delta", "nan"],
        [*POOL, "--delta", "1"],
        [*POOL, "--delta", "1e-400"],
        [*POOL, "--delta", "1e-99999999999"],
        [*POOL, "--epsilon", "0"],
        [*POOL, "--epsilon", "-1"],
        [*POOL, "--epsilon", "nan"],
        [*POOL, "--epsilon", "1e999"],
        [*POOL, "--epsilon-per-rado", "0"],
        [*POOL, "--epsilon-per-rado", "-0.5"],
        [*POOL, "--epsilon-per-rado", "inf"],
        [*POOL, "--epsilon-per-rado", "1e-30"],
        [*POOL, "--epsilon-per-rado", "0.5", "--epsilon", "1"],
        [*POOL, "--design", "plain", "--epsilon", "1"],
        [*POOL, "--design", "gauss"],
        [*POOL, "--split", "half"],
        [*POOL, "--honest", "1"],
        [*POOL, "--norm-bound", "2"],
        [*POOL, "--joint"],
        [*POOL, "--joint", "--epsilon-per-rado", "1"],
        [*POOL, "--joint", "--epsilon", "1", "--source", "word"],
        [*POOL, "--joint", "--epsilon", "1", "--source", "category"],
        [*POOL, "--design", "plain", "--joint"],
        [*POOL, "--design", "gaussian", "--coordinates", "5"],
        [*POOL, "--design", "gaussian", "--epsilon", "1"],
        [*POOL, "--design", "gaussian", "--epsilon", "1", "--coordinates", "1"],
        [*POOL, "--design", "gaussian", "--epsilon", "1", "--coordinates", "5", "--norm-bound", "0"],
        [*POOL, "--design", "gaussian", "--epsilon", "1", "--coordinates", "5", "--norm-bound", "1/2"],
        [*POOL, "--design", "gaussian", "--epsilon", "1", "--coordinates", "5", "--support", "1"],
        [*POOL, "--design", "gaussian", "--epsilon", "1", "--coordinates", "5", "--honest", "2"],
        [*POOL, "--design", "gaussian", "--share-sd", "0", "--coordinates", "5"],
        [*POOL, "--design", "moments", "--epsilon", "1", "--coordinates", "5"],
        [*POOL[:4], "--design", "moments", "--coordinates", "5"],
        [*POOL[:4], "--design", "moments", "--epsilon", "1", "--coordinates", "5", "--edge-weight", "-1"],
        [*POOL, "--picture", "plan.jpg"],
        [*POOL, "--picture", "no/such/directory/plan.png"],
        [*POOL, "--coordinates", "0"],
        [*POOL, "--key-bits", "1024"],
        [*POOL, "--party-rows", "10,20"],
        [*POOL[:4], "--rados", "0"],
        [*POOL[:4], "--rados", "-3"],
        [*POOL[:4], "--rados", "1000000000"],
        ["--rows", "0", "--parties", "1", "--rados", "1"],
        ["--rows", "5", "--parties", "6", "--rados", "1"],
        ["--rows", "5", "--parties", "0", "--rados", "1"],
        ["--rows", "99999999999999", "--parties", "2", "--rados", "1"],
        ["--rows", "5", "--rados", "1"],
        ["--rados", "1"],
        ["--party-rows", "", "--rados", "1"],
        ["--party-rows", "0,5", "--rados", "1"],
        ["--party-rows", "5,,6", "--rados", "1"],
        ["--party-rows", "5,many", "--rados", "1"],
        ["--party-rows", "5,6", "--parties", "3", "--rados", "1"],
        POOL[:4],
    ],
)
def test_bad_input_is_one_sentence_and_4(capsys, arguments):
    code = run(["plan", "--design", "dp-feat", *arguments, "--format", "json"])
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert (code, found["status"]) == (4, "error")
    assert found["error"]["code"] in ("CONFIGURATION", "USAGE")
    assert "Traceback" not in captured.err
    assert len(found["error"]["message"]) > 10


@pytest.mark.parametrize("split", ["local", "exact"])
@pytest.mark.parametrize("options", [{}, {"epsilon": Fraction(1)}, {"epsilon_per_rado": Fraction(1, 10)}])
def test_large_plans_are_feasible(options, split):
    rows = split_equally(1_000_000, 4)
    assert plan_cost(
        PlanRequest(design="dp-feat", party_rows=rows, rados=10_000, split=split, coordinates=100, **options)
    ).feasible


def test_cohorts_of_any_size_have_honest_parties():
    plans = [planned(PlanRequest(design="plain", party_rows=(9,) * k, rados=1)) for k in range(1, 7)]
    honest = [plan.query.honest_parties for plan in plans]
    assert honest == [1, 2, 2, 2, 3, 4]


@pytest.mark.more
@pytest.mark.parametrize(
    ("arguments", "panels"),
    [
        pytest.param(["--rados", "60", "--epsilon-per-rado", "1/2"], 2, marks=pytest.mark.slow),
        (["--design", "gaussian", "--rados", "60", "--epsilon", "1", "--coordinates", "3"], 2),
        pytest.param(["--design", "moments", "--epsilon", "1", "--coordinates", "3"], 1, marks=pytest.mark.slow),
        (["--design", "plain", "--rados", "60"], 1),
    ],
)
def test_a_picture_is_drawn(capsys, tmp_path, arguments, panels):
    file = tmp_path / "plan.svg"
    data(capsys, "--rows", "4000", "--parties", "3", *arguments, "--picture", str(file))
    parts = [part.tag.split("}")[1] for part in ET.parse(file).iter()]
    assert parts.count("svg") == 1 + panels
    assert parts.count("polyline") >= panels


@pytest.mark.more
def test_a_picture_of_moments_shows_the_sampling_error_beside_the_noise(capsys, tmp_path):
    """The glossary's term: "sampling" alone could be taken for the subsampling of records."""
    file, noise = tmp_path / "plan.svg", ("--design", "moments", "--epsilon", "1", "--coordinates", "3")
    data(capsys, "--rows", "4000", "--parties", "3", *noise, "--picture", str(file))
    texts = {part.text for part in ET.parse(file).iter()}
    assert {"noise of a mean edge", "noise of a mean product", "sampling error of a mean"} <= texts
    assert "sampling" not in texts


def test_a_picture_that_is_no_svg_is_refused(capsys, tmp_path):
    code, found = plan(capsys, *POOL, "--picture", str(tmp_path / "plan.png"))
    assert code == 4
    assert "give a name that ends in .svg" in found["error"]["message"]


def test_a_picture_is_not_drawn_over_a_file(capsys, tmp_path):
    file = tmp_path / "plan.svg"
    file.write_bytes(b"mine")
    code, found = plan(capsys, *POOL, "--picture", str(file))
    assert code == 4
    assert "already exists" in found["error"]["message"]
    assert file.read_bytes() == b"mine"


@pytest.mark.more
def test_words_fit_the_number_of_parties(capsys):
    assert run(["plan", "--design", "dp-feat", *POOL]) == 0
    assert "collude" not in capsys.readouterr().out
    noise = ("plan", "--design", "moments", "--rows", "4000", "--coordinates", "3", "--epsilon", "1")
    for parties, who in (("2", "the coordinator colludes"), ("3", "the coordinator and 1 party collude")):
        assert run([*noise, "--parties", parties]) == 0
        text = capsys.readouterr().out
        assert f"and at most 1.0000 if {who} with the learner, for one record" in text
        assert "2 ciphertexts under" in text
    assert run([*noise, "--parties", "4", "--epsilon", "0.0002"]) == 0
    assert "and at most 0.0002000 if" in capsys.readouterr().out


def test_who_gives_a_value_away_is_said(capsys):
    found = data(capsys, "--rows", "12", "--parties", "3", "--rados", "10")
    assert found["reason"].startswith("if the other parties collude with the learner, 10 rados at delta")
    # Four rows of one party, and all twelve for the learner alone.
    assert "probability 0.0625" in found["reason"]
    assert found["delta_per_rado"] == pytest.approx(2**-12)
    pool = data(capsys, "--rows", "12", "--parties", "1", "--rados", "10")
    assert pool["reason"].startswith("10 rados at delta")


@pytest.mark.more
def test_what_is_looked_for_ends_somewhere(capsys):
    found = data(capsys, "--rows", "1000000", "--parties", "1", "--rados", "10", "--epsilon", "10")
    assert found["largest_rados"] == MOST_LOOKED_FOR
    assert (
        run(["plan", "--design", "dp-feat", "--rows", "1000000", "--parties", "1", "--rados", "10", "--epsilon", "10"])
        == 0
    )
    assert "100000 rados or more" in capsys.readouterr().out
