"""The kit's parts without a member under test: its files, what it says, and how it judges noise."""

import json
import shlex
import shutil

import numpy as np
import pytest

from radofed.conformance import table
from radofed.conformance.contribution import of_deviation
from radofed.conformance.findings import SECTIONS, Findings
from radofed.conformance.kit import ASKED, LEARNER, PEERS, STRANGER, VERSION, WATCHED, prepare
from tests.conformance.joined import Joining
from tests.federation.processes import rado
from wire.roster import Role


@pytest.fixture(scope="module")
def joining(tmp_path_factory):
    joining = Joining(tmp_path_factory.mktemp("kit"), "party")
    joining.install()
    return joining


def test_what_is_handed_over_is_what_a_party_needs(joining):
    given = joining.kit / "for-the-member"
    members = json.loads((given / "members.json").read_text())
    assert members["coordinator_address"] == joining.address
    assert members["accepted_learner"]["name"] == LEARNER
    assert members["learner_that_waits_for_a_person"]["name"] == WATCHED
    assert members["columns"] == {"id": "person", "epoch": "month"}
    assert [each["name"] for each in members["accepted_parties"]] == list(PEERS)
    assert (given / "schema.json").read_bytes() == table.schema().canonical_bytes()
    kit = prepare(joining.kit, joining.request, role=Role.PARTY, listen=joining.address)
    assert kit.records.rows == table.rows_csv().count("\n") - 1
    # Some rows are not usable, and most are: all rules for cells occur in the table.
    assert 0.55 < kit.records.usable.mean() < 0.95
    assert kit.subject.name == "tested"


def test_a_second_run_keeps_the_federation(joining):
    before = (joining.kit / "for-the-member/tested.admission").read_bytes()
    rado(*joining.words("--only-prepare"))
    assert (joining.kit / "for-the-member/tested.admission").read_bytes() == before


def refused(joining, *words: str) -> str:
    return rado("conformance", *words, code=4)["error"]["message"]


def test_a_kit_is_for_one_request_and_one_address(joining, tmp_path):
    other = Joining(tmp_path, "party")
    there = ("party", str(joining.kit))
    assert "was made for another request" in refused(joining, *there, str(other.request), "--listen", joining.address)
    assert "was made for 127.0.0.1" in refused(joining, *there, str(joining.request), "--listen", "127.0.0.1:1")


def test_a_kit_of_another_version_is_refused_with_the_command_that_makes_it_anew(joining, tmp_path):
    old = tmp_path / "old kit"
    shutil.copytree(joining.kit, old)
    words = ("party", str(old), str(joining.request), "--listen", joining.address)
    command = f"`{shlex.join(['rado', 'conformance', *words, '--only-prepare'])}`"
    (old / "kit.json").write_text('{"format_version": 3}')
    newer = refused(joining, *words)
    assert "version 3 of the kit made it, and this one is version 2" in newer
    # Directories of before had no version.
    (old / "kit.json").unlink()
    for more in ((), ("--only-prepare",), ("--set-back",)):
        earlier = refused(joining, *words, *more)
        assert "an earlier version of the kit made it" in earlier
        assert command in earlier
        assert "starts with an empty ledger" in earlier
    # The command does what the error says.
    old.rename(tmp_path / "away")
    assert "tested.admission" in rado("conformance", *words, "--only-prepare")["data"]["files"]


def test_the_members_of_a_kit_are_those_of_its_version():
    """A kit's directory keeps the members that it was made with: other members need another `VERSION`."""
    members = (LEARNER, STRANGER, WATCHED, PEERS[0], PEERS[-1], len(PEERS))
    assert VERSION == 2
    assert members == ("kit-learner", "kit-stranger", "kit-watched", "kit-p01", "kit-p23", 23)


def test_what_cannot_be_tested_is_refused_with_a_sentence(joining, tmp_path):
    part = rado(*joining.words("--only", "riddles"), code=4)["error"]["message"]
    assert "the kit has no part 'riddles'; its parts are kinds, repeats" in part
    new = str(tmp_path / "new")
    request, listen = str(joining.request), ("--listen", joining.address)
    assert "is a party's request; give a learner's" in refused(joining, "learner", new, request, *listen)
    assert "--schema and --rows belong together" in refused(
        joining, "party", new, request, *listen, "--rows", str(tmp_path / "rows.csv")
    )
    words = ("--federation", "trial", "--role", "party", "--name", "kit-p01")
    taken = rado("provision", "request", str(tmp_path / "taken"), *words)["data"]["file"]
    assert "names that begin with kit- are the kit's own" in refused(joining, "party", new, taken, *listen)
    assert not (tmp_path / "new").exists()


def test_a_learner_is_given_whom_it_accepts_and_needs_a_program(tmp_path):
    joining = Joining(tmp_path, "learner")
    given = joining.install()
    members = json.loads((given / "members.json").read_text())
    assert [each["name"] for each in members["accepted_parties"]] == list(ASKED)
    assert not (given / "rows.csv").exists()
    known = rado(*joining.words("--command", "true", "--asks", "riddles"), code=4)["error"]["message"]
    assert "the kit knows no query 'riddles' to be asked; it knows dp-feat" in known
    assert "no --command" in rado(*joining.words(), code=4)["error"]["message"]
    assert "write it as in a shell" in rado(*joining.words("--command", "'open"), code=4)["error"]["message"]


def test_noise_of_the_right_scale_passes_and_no_other():
    draw = np.random.default_rng(11)
    for count in (4, 40, 400):
        noise = draw.standard_normal(count)
        assert of_deviation(noise) is None
        assert of_deviation(np.zeros(count)) is not None or count == 4
        assert "standard deviations of the noise" in of_deviation(np.append(noise, 9.0))
    noise = draw.standard_normal(400)
    assert "only 0." in of_deviation(0.7 * noise)
    assert "times the standard deviation" in of_deviation(1.3 * noise)
    assert of_deviation(np.zeros(0)) is None


def test_findings_are_sorted_by_section_and_conform_only_if_something_passed():
    findings = Findings()
    assert not findings.conforms
    findings.add("6", "sums are right", passed=True)
    assert findings.complete
    assert findings.sentences()[-1] == "conforms: all parts were played, and nothing failed"
    findings.add("7.4", "it uploads nothing for a forged cohort", passed=None, detail="not tried")
    assert findings.conforms
    # What was not played is named, so that nothing is claimed of it.
    assert not findings.complete
    verdict, not_played = findings.sentences()[-2:]
    assert verdict.startswith(
        "conforms in what was played: nothing failed. 1 thing was NOT played, and nothing is shown"
    )
    assert not_played == "  not played [7.4] it uploads nothing for a forged cohort: not tried"
    findings.add("7.5", "it charges", passed=False, detail="it does not")
    findings.add("2", "it signs", passed=True, detail="a remark")
    assert not findings.conforms
    lines = findings.sentences()
    assert lines == [
        "2. Envelopes: 1 passed",
        "  passed [2] it signs: a remark",
        "6. Numbers: 1 passed",
        "7. A party's part: 1 failed, 1 skipped",
        "  FAILED [7.5] it charges: it does not",
        "  skipped [7.4] it uploads nothing for a forged cohort: not tried",
        "does not conform: 2 passed, 1 failed, 1 skipped",
    ]
    assert {each["section"].partition(".")[0] for each in findings.to_dict()["findings"]} <= set(SECTIONS)
