"""The tutorial on deciding, command by command: four processes, a person who approves and refuses, a report."""

import re
import signal
from collections import Counter
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from tests.docs.examples import DOCS, EXAMPLE, rado
from tests.federation.processes import Forked, free_port, run_rado
from tests.waiting import HANG_S, wait_until

PAGE = (DOCS / "tutorials/deciding.md").read_text()
SHOWN_IDS = ("3fa94c0b71", "b02d6e94f5")
_START = re.compile(r"(?P<command>rado .* start .*) 2> (?P<log>\S+) &")


class Reader:
    """Who follows the page in an empty directory. ids: of the queries that were asked, in their order."""

    def __init__(self, where: Path) -> None:
        self.where = where
        self.address = f"localhost:{free_port()}"
        self.ids: list[str] = []
        self.nodes: list[Forked] = []

    def do(self, command: str) -> str:
        """Run one command of the page as it is shown, and return what it prints."""
        if started := _START.fullmatch(command):
            log = self.where / started["log"]
            self.nodes.append(Forked(run_rado, tuple(started["command"].split()[1:]), log))
            return ""
        command, _, file = command.partition(" > ")
        for shown, real in zip(SHOWN_IDS, self.ids, strict=False):
            command = command.replace(shown, real[:10])
        if "*" in command:
            command = re.sub(r"\S+\*", lambda found: str(next(self.where.glob(found[0]))), command)
        printed = rado(command.replace("localhost:7443", self.address), self.where)
        if command.startswith("rado learner query"):
            self.ids.append(re.search(r"rado learner fetch ([0-9a-f]+)", printed)[1])
            self.wait_for_the_party()
        if file:
            (self.where / file).write_text(printed)
        return printed

    def coordinator_listens(self) -> bool:
        log = self.where / "coordinator.log"
        return log.exists() and "listening" in log.read_text()

    def wait_for_the_party(self) -> None:
        """Wait until the query that was asked last waits for a person, and the other parties have answered."""

        def is_pending():
            pending = rado("rado party pending --config clinics/members/north/party.toml", self.where)
            learner = "--config clinics/members/university/learner.toml"
            return self.ids[-1][:10] in pending and "2 ready" in rado(
                f"rado learner status {self.ids[-1]} {learner}", self.where
            )

        wait_until(is_pending, what="the query at north")


def words_of(printed: str) -> Counter:
    """The words of an output, without what differs from run to run: ids, times, zones, users, seconds and frames."""
    text = re.sub(r"\d{4}-\d{2}-\d{2}|\d{2}:\d{2}:\d{2}(\.\d+)?|\b[0-9a-f]{10,}\b|[─\s]+", " ", printed)
    return Counter(re.sub(r"\b\d+ s left|\bUTC\b|\([a-z_][\w-]*\)|[A-Z]{3,4}(?= |$)", "", text).split())


def is_as_said(printed: str, said: str) -> bool:
    """Whether an output is that of the page, in which a line [...] stands for any lines."""
    parts = said.split("[...]\n")
    if len(parts) == 1:
        return words_of(printed) == words_of(said)
    return words_of("".join(parts)) <= words_of(printed)


@pytest.fixture
def reader(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # The page shows times of this zone, and the user of this name.
    monkeypatch.setenv("TZ", "UTC")
    found = Reader(tmp_path)
    yield found
    for node in found.nodes:
        node.kill()


@pytest.mark.more
def test_from_a_pending_query_to_a_signed_report(reader):
    ended = []
    for python, command, said in EXAMPLE.findall(PAGE):
        if python:
            with redirect_stdout(StringIO()):
                exec(compile(python, "tutorial", "exec"), {})
            continue
        if command.startswith("rado learner keygen"):
            wait_until(reader.coordinator_listens, what="the coordinator")
        if "status b02d6e94f5" in command:
            wait_until(lambda c=command: "PERSON_REFUSED" in reader.do(c), what="the refusal")
        printed = reader.do(command)
        if said:
            assert is_as_said(printed, said), command
        ended.append(command.split()[1:3])
    assert len(reader.nodes) == 4
    assert ["party", "approve"] in ended
    assert ended[-1] == ["party", "report"]
    page = (reader.where / "report.html").read_text()
    assert "Ann Lee" in page
    assert (reader.where / "model.json").stat().st_size
    for node in reader.nodes:
        node.send_signal(signal.SIGTERM)
    assert [node.wait(HANG_S) for node in reader.nodes] == [0, 0, 0, 0]
