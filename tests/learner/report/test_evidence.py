"""A learner's evidence: a crate with a record of each answer and of the model, from releases that are whole."""

import shutil

import pytest

from radofed.cli.entry_point import run
from tests.crates.reading import Received


def file(subject, crate, *more) -> int:
    return run(["learner", "report", *map(str, (subject, "--crate", crate, *more))])


def test_a_model_s_record_has_the_composition_of_its_answers(reported, tmp_path):
    crate = tmp_path / "newton.zip"
    releases = [text for place in reported.answers for text in ("--release", place)]
    assert file(reported.newton, crate, *releases) == 0
    received = Received(crate, tmp_path / "received")
    received.check_profile()
    records = {record["output"]["what"]: record for record in received.records()}
    assert [each["output"]["what"] for each in received.records()].count("answer") == 3
    model = records["model"]
    assert model["privacy"]["epsilon_if_others_collude"] == pytest.approx(2, rel=0.05)
    assert len(model["asked"]["answers"]) == 3
    assert records["answer"]["privacy"]["epsilon"] < model["privacy"]["epsilon"]
    assert model["privacy"]["assumptions"]
    # Without the learner's configuration no key is pinned.
    assert model["checks"][0]["result"] == "not checked"
    assert [check["result"] for check in model["checks"]][1:] == ["passed", "passed"]
    assert model["approvals"] == []
    assert "each party" in model["decision"]
    assert model["sign_off"][1]["item"] == "Use of the model approved by"
    assert received.read("registry.json")["tier"] == 3


@pytest.mark.more
def test_the_ecosystem_s_validator_accepts_it(reported, tmp_path):
    crate = tmp_path / "release.zip"
    assert file(reported.releases[0], crate) == 0
    Received(crate, tmp_path / "received").validate()


def test_without_whole_releases_there_is_no_evidence(reported, tmp_path, capsys):
    crate = tmp_path / "model.zip"
    changed = tmp_path / "changed"
    shutil.copytree(reported.releases[0], changed)
    text = (changed / "release.json").read_text()
    (changed / "release.json").write_text(text.replace('"attempt": 1', '"attempt": 2'))
    for arguments, says in (
        ((reported.model,), "no evidence was written: no --release and no --config"),
        ((changed,), "was changed"),
        ((reported.model, "--release", changed), "was changed"),
    ):
        assert file(arguments[0], crate, *arguments[1:]) == 4, arguments
        assert says in capsys.readouterr().err
        assert not crate.exists()
