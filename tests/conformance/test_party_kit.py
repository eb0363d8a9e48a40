"""The kit against our own party: it passes, and with one thing broken fails in the section that says so."""

import os

import pytest

from tests.conformance.broken_parties import BREAKS, run_broken
from tests.conformance.joined import Joining, outcomes
from tests.federation.processes import rado
from wire.envelopes import SigningKey
from wire.statements import Acceptance, LedgerHead

QUICK = ("--wait-s", "600", "--patience-s", "60", "--quiet-s", "1.5")


@pytest.fixture
def joining(tmp_path):
    joining = Joining(tmp_path, "party")
    joining.install()
    return joining


@pytest.mark.more
def test_our_own_party_conforms(joining):
    missing = rado(*joining.words("--set-back"), code=4)["error"]["message"]
    assert "run the kit once without --set-back" in missing
    with joining.node():
        data = rado(*joining.words(*QUICK, *joining.approve()))["data"]
    assert data["complete"], outcomes(data, "failed") + outcomes(data, "skipped")
    assert (data["failed"], data["skipped"], data["not_played"]) == (0, 0, [])
    assert data["passed"] > 105
    assert {each["section"].partition(".")[0] for each in data["findings"]} == {"1", "2", "3", "4", "5", "6", "7"}
    # With its ledger lost, it answers nothing: the kit's parties show what it accepted.
    for file in (joining.home / "state").glob("ledger*"):
        file.unlink()
    with joining.node():
        data = rado(*joining.words(*QUICK, "--set-back"))["data"]
    assert [each["what"] for each in data["findings"] if each["section"] == "7.9"] == [
        "it answers nothing if other parties show an acceptance of its own that its ledger lacks"
    ]
    assert data["conforms"]


def forget_a_charge(joining) -> None:
    """The kit has an acceptance of a former run, of entries that the party's empty ledger lacks."""
    key = SigningKey.load(joining.home / "signing.key", "trial")
    head = LedgerHead(5, os.urandom(32), b"")
    acceptance = Acceptance(
        os.urandom(32), 1, "tested", rows=9, mask_key=os.urandom(32), roster_version=1, ledger_head=head
    )
    (joining.kit / "newest.signed").write_bytes(acceptance.sign(key).to_bytes())


@pytest.mark.more
def test_a_party_may_end_when_it_sees_that_its_ledger_is_lost(joining):
    forget_a_charge(joining)
    with joining.node(run_broken, "that_ends_when_its_ledger_is_lost"):
        data = rado(*joining.words("--wait-s", "600", "--patience-s", "3", "--quiet-s", "1", "--set-back"))["data"]
    assert data["conforms"], outcomes(data, "failed")
    assert data["findings"][-1]["section"] == "7.9"


@pytest.mark.more
def test_a_party_that_answers_with_its_ledger_lost_does_not_conform(joining):
    forget_a_charge(joining)
    with joining.node(run_broken, "that_believes_its_own_ledger"):
        data = rado(*joining.words(*QUICK, "--set-back"), code=1)["data"]
    ((section, _, detail),) = outcomes(data, "failed")
    assert (section, "spent again" in detail) == ("7.9", True), detail


# The break, the section that a failure must name, and words of its detail.
FOUND = {
    "without_masks": ("6", "the slots are not masked at all"),
    "with_masks_of_the_wrong_sign": ("6", "the masks have the wrong signs"),
    "with_an_unmasked_tag": ("6", "the tag is not masked"),
    "without_noise": ("6", "times the standard deviation"),
    "with_half_of_the_noise": ("6", "times the standard deviation"),
    "with_labels_swapped": ("6", "standard deviation"),
    "that_forgets_to_trim": ("6", "standard deviation"),
    "that_believes_every_cohort": ("7.4", "it uploaded"),
    "that_believes_every_coordinator": ("2", "that no learner signed"),
    "that_charges_nothing": ("7.5", "both cost more than the limit"),
    "that_charges_what_it_accepts": ("7.5", "the budget is taken"),
    "with_one_mask_key": ("7.2", "a mask key is used in two attempts"),
    "with_fresh_noise_in_a_table": ("6", "the same table asked again has other noise"),
    "with_shortened_rados": ("6", "the rados are not those of the rows"),
    "that_counts_each_row_as_a_person": ("6", "standard deviation"),
    "that_answers_about_all_rows": ("6", "standard deviation"),
    "that_approves_a_learner_once": ("7.2", "was accepted without a person's decision"),
    "that_unmasks_any_survivors": ("7", "its shares for two sets of survivors"),
    "that_deals_its_whole_keys": ("7", "shares give its secret"),
}
# What is broken in an optional part: the kit plays that part alone.
PARTS = {
    "with_fresh_noise_in_a_table": "rados",
    "with_shortened_rados": "rados",
    "that_counts_each_row_as_a_person": "persons",
    "that_answers_about_all_rows": "epochs",
    "that_approves_a_learner_once": "trainings",
    "that_unmasks_any_survivors": "survivors",
    "that_deals_its_whole_keys": "survivors",
}


# They take about a minute each: four run in the second tier, the others in `make test-all`.
QUICKLY = ("without_masks", "that_charges_nothing", "that_answers_about_all_rows", "that_unmasks_any_survivors")


@pytest.mark.more
@pytest.mark.parametrize(
    "name", [name if name in QUICKLY else pytest.param(name, marks=pytest.mark.slow) for name in BREAKS]
)
def test_what_is_broken_is_found_in_its_section(joining, name):
    only = ("--only", PARTS[name]) if name in PARTS else ()
    with joining.node(run_broken, name):
        data = rado(*joining.words(*QUICK, *joining.approve(), *only), code=1)["data"]
    assert not data["conforms"]
    section, words = FOUND[name]
    failed = outcomes(data, "failed")
    assert any(where == section and words in detail for where, _, detail in failed), "\n".join(map(str, failed))
