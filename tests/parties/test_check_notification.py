"""The preflight's check of [notify], and of study numbers that differ in spelling only."""

import json

import pytest

from tests.parties.approval.test_notifying import COPIES, program, told
from tests.parties.check_world import run


def notify(federation, *command: str) -> None:
    file = federation.member("ada").config
    file.write_text(f"{file.read_text()}\n[notify]\ncommand = {json.dumps(command)}\n")


def test_it_is_run_only_when_asked_and_says_that_it_is_a_test(offline, tmp_path):
    assert "notification" not in run(offline, notify=True)
    notify(offline, *program(tmp_path, COPIES))
    found = run(offline)["notification"]
    assert (found.status, "it was not run: --notify runs it once" in found.detail) == ("ok", True)
    assert told(tmp_path) == []
    assert "ended well after" in run(offline, notify=True)["notification"].detail
    (message,) = told(tmp_path)
    assert message["test"] is True
    assert message["title"].startswith("TEST, nothing waits: ")
    assert message["text"].startswith("TEST, nothing waits: ")


def test_a_command_that_cannot_be_executed_is_a_failure(offline, tmp_path):
    notify(offline, str(tmp_path / "notify"))
    found = run(offline)["notification"]
    assert (found.status, "notify does not exist, so nobody is told" in found.detail) == ("failed", True)
    (tmp_path / "notify").write_text("#!/bin/sh\n")
    assert "this user may not execute" in run(offline, notify=True)["notification"].detail


@pytest.mark.parametrize("word", ["no-such-program-here", "/tmp"])
def test_a_name_without_a_program_is_a_failure(offline, word):
    notify(offline, word)
    found = run(offline)["notification"]
    assert found.status == "failed"
    assert ("in the directories of PATH" if "/" not in word else "is a directory") in found.detail


def test_a_command_that_fails_is_a_failure(offline, tmp_path):
    notify(offline, *program(tmp_path, "sys.exit(3)"))
    assert run(offline)["notification"].status == "ok"
    found = run(offline, notify=True)["notification"]
    assert (found.status, "ended with the code 3" in found.detail) == ("failed", True)


def test_numbers_of_studies_that_are_spelt_alike_are_advised(offline):
    policy = offline.directory("ada") / "policy.toml"
    text, rules = policy.read_text(), '\n[limits.studies."{}"]\nepsilon = "1"\ndelta = "1e-5"\n'
    assert "study-numbers" not in run(offline)
    policy.write_text(text + rules.format("EK 2026/17") + rules.format("EK 2026/18"))
    assert run(offline)["study-numbers"].status == "ok"
    policy.write_text(text + rules.format("EK 2026/17") + rules.format("ek 2026-17"))
    found = run(offline)["study-numbers"]
    assert found.status == "advice"
    assert found.fix.startswith('"EK 2026/17" and "ek 2026-17": may be one study.')
    assert "Each spelling has a budget of its own" in found.fix
