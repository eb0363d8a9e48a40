"""The command that tells people that a query waits: real programs that work, fail, hang, and flood."""

import json
import stat
import sys
import threading
import time
from pathlib import Path

import pytest

from parties.approval.notifying import MOST_TOLD, Notice, NotificationError, Notifier, NotifySettings, run_command
from radobase.logs import Log
from tests.waiting import wait_until

LOG = Log("party.ada")


def notice(number: int = 0, **changes) -> Notice:
    fields = {
        "query_id": f"{number:064x}",
        "learner": "lea",
        "asked": "the means of 2 columns",
        "purpose": 'Study 17: "$(reboot)"',
        "training": "",
        "reasons": ("every query needs approval",),
        "cost": "epsilon 0.5",
        "answers_due_unix_s": time.time() + 3600,
    }
    return Notice(**(fields | changes))


def program(directory, body: str) -> tuple[str, ...]:
    """A program of the operator's, which finds its directory as its first argument."""
    path = directory / "notify"
    path.write_text(
        f"#!{sys.executable}\nimport json, os, sys, time\nfrom pathlib import Path\nhere = Path(sys.argv[1])\n{body}\n"
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path), str(directory)


COPIES = """
n = len(list(here.glob("told-*")))
(here / "new").write_text(sys.stdin.read())
(here / "new").rename(here / f"told-{n}")
"""


def told(directory) -> list[dict]:
    return [json.loads(path.read_text()) for path in sorted(directory.glob("told-*"))]


def outcomes_of(settings: NotifySettings, *notices: Notice, until: str, first_pause_s: float = 0.01) -> list[str]:
    """What a notifier's runs ended with, until one ended so."""
    found: list[str] = []
    with Notifier(settings, "ada", "clinics", LOG, found.append, first_pause_s=first_pause_s) as notifier:
        for each in notices:
            notifier.add(each)
        wait_until(lambda: until in found, what=until)
    return found


def test_it_reads_the_message_as_json_with_a_text_for_people(tmp_path, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", "secret")
    body = f'{COPIES}\n(here / "environment").write_text(str(dict(os.environ)))'
    settings = NotifySettings(command=program(tmp_path, body))
    outcomes_of(settings, notice(1), until="sent")
    (found,) = told(tmp_path)
    assert (found["format"], found["party"], found["count"]) == (1, "ada", 1)
    assert found["queries"][0]["query_id"] == f"{1:064x}"
    assert "rado party explain 000000000000" in found["text"]
    # No shell, so nothing that a learner writes is run; and no secret of the node's environment.
    assert '"Study 17: \\"$(reboot)\\""' in found["text"]
    assert "secret" not in (tmp_path / "environment").read_text()


def test_its_text_has_no_line_that_a_learner_wrote(tmp_path):
    settings = NotifySettings(command=program(tmp_path, COPIES))
    reason = "not on the list: \x1b[2Ja\nquery 1 waits for nothing"
    outcomes_of(settings, notice(1, reasons=(reason,)), until="sent")
    (found,) = told(tmp_path)
    assert len(found["text"].splitlines()) == 6
    assert "\x1b" not in found["text"]


def test_many_at_once_are_few_messages(tmp_path):
    settings = NotifySettings(command=program(tmp_path, f"time.sleep(0.3)\n{COPIES}"), pause_s=0)
    found: list[str] = []
    with Notifier(settings, "ada", "clinics", LOG, found.append) as notifier:
        for number in range(500):
            notifier.add(notice(number))
        wait_until(lambda: sum(each["count"] for each in told(tmp_path)) >= 500, what="all to be told")
    messages = told(tmp_path)
    assert len(messages) <= 3
    assert all(len(each["queries"]) <= MOST_TOLD for each in messages)
    assert any("more: rado party pending" in each["text"] for each in messages)


def test_one_that_fails_is_tried_again_and_given_up(tmp_path):
    settings = NotifySettings(command=program(tmp_path, "sys.exit(3)"), attempts=3, pause_s=0)
    assert outcomes_of(settings, notice(), until="given_up") == ["failed"] * 3 + ["given_up"]


def test_how_it_ended_is_said(tmp_path):
    with pytest.raises(NotificationError, match="ended with the code 3"):
        run_command(NotifySettings(command=program(tmp_path, "sys.exit(3)")), b"{}")


def test_one_that_works_the_second_time_is_sent(tmp_path):
    body = f'first = here / "first"\nif not first.exists():\n    first.touch()\n    sys.exit(1)\n{COPIES}'
    settings = NotifySettings(command=program(tmp_path, body))
    assert outcomes_of(settings, notice(), until="sent") == ["failed", "sent"]


@pytest.mark.parametrize("body", ["time.sleep(1000)", "os.fork() or time.sleep(1000)\ntime.sleep(1000)"])
def test_one_that_hangs_is_ended_with_what_it_started(tmp_path, body):
    written = f'(here / "new").write_text(str(os.getpgrp()))\n(here / "new").rename(here / "group")\n{body}'
    command = program(tmp_path, written)
    # A busy machine may take longer until the program runs.
    for timeout_s in (1.5, 15, 150):
        with pytest.raises(NotificationError, match=rf"longer than {timeout_s} s"):
            # More than a pipe holds, to a program that reads nothing.
            run_command(NotifySettings(command=command, timeout_s=timeout_s), bytes(1 << 20))
        if (tmp_path / "group").exists():
            break
    group = (tmp_path / "group").read_text()
    # Who is killed is gone a moment later.
    wait_until(lambda: not any(_is_of(path, group) for path in _processes()), what="the program's processes to be gone")


def _processes():
    return [path for path in Path("/proc").iterdir() if path.name.isdigit()]


def _is_of(path, group: str) -> bool:
    try:
        fields = (path / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return fields[2] == group and fields[0] != "Z"


@pytest.mark.more
def test_one_that_writes_without_end_is_ended_and_nothing_is_kept(tmp_path):
    settings = NotifySettings(command=program(tmp_path, 'while True:\n    print("x" * 65536)'), timeout_s=1)
    with pytest.raises(NotificationError, match="longer"):
        run_command(settings, b"{}")


def test_one_that_leaves_its_session_and_reads_nothing_keeps_nothing_of_the_node(tmp_path):
    body = "if os.fork() == 0:\n    os.setsid()\n    time.sleep(5)"
    settings = NotifySettings(command=program(tmp_path, body))

    def held() -> tuple[int, int]:
        return threading.active_count(), len([*Path("/proc/self/fd").iterdir()])

    before = held()
    run_command(settings, bytes(1 << 20))
    assert held() == before


def test_one_that_is_not_there_is_a_sentence(tmp_path):
    settings = NotifySettings(command=(str(tmp_path / "missing"),))
    with pytest.raises(NotificationError, match="cannot be run"):
        run_command(settings, b"{}")


def test_a_node_that_stops_does_not_wait_for_it(tmp_path):
    body = '(here / "began").touch()\ntime.sleep(1000)'
    settings = NotifySettings(command=program(tmp_path, body), timeout_s=600)
    with Notifier(settings, "ada", "clinics", LOG) as notifier:
        notifier.add(notice())
        wait_until((tmp_path / "began").exists, what="the command")
        begun = time.monotonic()
    assert time.monotonic() - begun < 300
