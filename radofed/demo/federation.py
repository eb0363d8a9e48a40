"""A federation of the demo: provision it, give the parties their rows, start and stop its nodes."""

import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, TracebackType
from typing import IO, Any, Self

from dpcore.errors import RadofedError
from dpcore.records.schema import Schema
from radofed.demo.child import ChildProcess
from radofed.demo.tables import DemoData
from radofed.node_config import PolicyChoices
from radofed.provision import Provisioned, provision
from wire.roster import Role

# The demo's child processes. Their logs go to files; they end with the demo, however it ends.

# Longer than a node gives what it has begun (10 s).
STOP_WITHIN_S = 20.0
POLL_S = 0.05
LOG_LINES_SHOWN = 15


class ChildError(RadofedError):
    """A process of the demo ended too early or failed."""

    def __init__(self, name: str, sentence: str) -> None:
        self.name = name
        super().__init__(f"the demo's {name} {sentence}")


@dataclass(frozen=True)
class Child:
    """A running node."""

    name: str
    process: ChildProcess
    log: Path

    def check(self) -> None:
        """Raise ChildError if the node has ended."""
        if (code := self.process.code) is not None:
            raise ChildError(self.name, f"ended early with exit code {code}; its log says why")


class Children:
    """Runs `rado` commands as child processes. Leaving the context ends those that still run."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._nodes: list[Child] = []
        self._running: list[ChildProcess] = []
        logs.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self, name: str, *arguments: str) -> Child:
        """Start a node that runs until it is stopped."""
        log = self._logs / f"{name}.log"
        process = self._started(arguments, Path(os.devnull), log)
        child = Child(name, process, log)
        self._nodes.append(child)
        return child

    def run(self, name: str, *arguments: str, on_line: Callable[[str], None] | None = None) -> dict[str, Any]:
        """Run a command to its end and return the `data` of its JSON output.

        on_line: receives every line of its standard error. Raises ChildError if it fails, or if a node ends first.
        """
        log = self._logs / f"{name}.log"
        answer = self._logs / f"{name}.json"
        log.write_bytes(b"")
        process = self._started((*arguments, "--format", "json"), answer, log)
        with log.open("rb") as lines:
            while (code := process.code) is None:
                self.check()
                _pass_on(lines, on_line)
                time.sleep(POLL_S)
            _pass_on(lines, on_line)
        try:
            found = json.loads(answer.read_bytes())
        except ValueError as error:
            raise ChildError(name, f"ended with exit code {code} and no answer: {last_lines(log)}") from error
        if found["status"] != "ok":
            raise ChildError(name, f"failed: {found['error']['message']}")
        data: dict[str, Any] = found["data"]
        return data

    @property
    def nodes(self) -> Sequence[Child]:
        """The nodes that were started, in order."""
        return tuple(self._nodes)

    def check(self) -> None:
        """Raise ChildError if a node has ended that was not stopped."""
        for node in self._nodes:
            if node.process in self._running:
                node.check()

    def stop(self) -> None:
        """Terminate all processes that still run; kill those that do not end within STOP_WITHIN_S."""
        for process in self._running:
            process.terminate()
        end = time.monotonic() + STOP_WITHIN_S
        for process in self._running:
            process.end(max(0.0, end - time.monotonic()))
        self._running.clear()

    def _started(self, arguments: Sequence[str], output: Path, log: Path) -> ChildProcess:
        process = ChildProcess(arguments, self._logs, output, log)
        self._running.append(process)
        return process

    def logs_of_all(self) -> str:
        """The last lines of every node's log."""
        return "\n".join(f"--- {node.name}\n{last_lines(node.log)}" for node in self._nodes)


def _pass_on(log: IO[bytes], on_line: Callable[[str], None] | None) -> None:
    """Give each whole line that was written since the last call."""
    while on_line is not None and (line := log.readline()):
        if not line.endswith(b"\n"):
            log.seek(-len(line), os.SEEK_CUR)
            return
        on_line(line.decode(errors="replace").rstrip())


def wait_for(what: str, ready: Callable[[], bool], children: Children, timeout_s: float) -> None:
    """Return once `ready()` is true. Raises ChildError if a node ends before, or after `timeout_s`."""
    end = time.monotonic() + timeout_s
    while not ready():
        children.check()
        if time.monotonic() > end:
            raise ChildError(what, f"was not ready within {timeout_s:g} s")
        time.sleep(POLL_S)


def last_lines(log: Path, count: int = LOG_LINES_SHOWN) -> str:
    """The last `count` lines of a log."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    return "\n".join(lines[-count:])


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into KeyboardInterrupt, so that they stop the children, too."""

    def end(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def has_content(path: Path) -> bool:
    """Whether a file exists and is not empty."""
    return path.exists() and path.stat().st_size > 0


NAME = "demo"
KEY_BITS = 3072
START_WITHIN_S = 60.0
# Port 0: the operating system chooses the port; the coordinator writes the address into its state directory.
ANY_PORT = "127.0.0.1:0"

Note = Callable[[str], None]
"""Progress callback `(sentence)`."""


@dataclass
class Clock:
    """Measures the seconds of phases; a phase that is entered again adds up."""

    phases_s: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the duration of the block to the phase `name`."""
        start = time.monotonic()
        yield
        self.phases_s[name] = self.phases_s.get(name, 0.0) + time.monotonic() - start


@dataclass(frozen=True)
class Shared:
    """The tables of a federation's parties."""

    data: DemoData
    schema: Path
    """Their common file."""
    rows: dict[str, int]
    """Number of rows, by party name."""

    @classmethod
    def of(cls, data: DemoData) -> "Shared":
        """Count the parties' rows and write the schema file next to them."""
        schema = data.test.with_name("schema.toml")
        schema.write_text(data.schema.to_toml(), encoding="utf-8")
        return cls(data, schema, {name: _count_rows(file, data.schema) for name, file in data.parties.items()})

    def rows_words(self) -> str:
        """The parties with their numbers of rows, as text."""
        return ", ".join(f"{name} {count}" for name, count in self.rows.items())


@dataclass(frozen=True)
class RunningFederation:
    """A running federation."""

    children: Children
    config: Path
    """The learner's configuration file."""


@contextmanager
def running_federation(
    directory: Path, shared: Shared, policy: PolicyChoices, clock: Clock, note: Note
) -> Iterator[RunningFederation]:
    """Provision a federation in `directory` and run its nodes as processes until the block ends.

    All processes have ended when this returns. Raises ChildError if a node fails, after it notes the end of every log.
    """
    with Children(directory / "logs") as children:
        try:
            with clock.phase("data and keys"):
                made = _provisioned(directory, shared, policy)
                (learner,) = made.of(Role.LEARNER)
                note(f"making the learner's {KEY_BITS}-bit Paillier key")
                children.run("keygen", "learner", "keygen", "--config", str(learner.config), "--bits", str(KEY_BITS))
            with clock.phase("starting nodes"):
                _start(made, children, note)
            yield RunningFederation(children, learner.config)
            children.check()
        except ChildError:
            note(children.logs_of_all())
            raise


def _count_rows(file: Path, schema: Schema) -> int:
    from parties.data.dataset import check  # noqa: PLC0415  (the demo acts as each party here)

    return check(schema, file).rows


def _provisioned(directory: Path, shared: Shared, policy: PolicyChoices) -> Provisioned:
    """Make keys, roster and configurations, and copy schema and rows to every party."""
    made = provision(
        directory / "federation",
        federation=NAME,
        coordinator_address=ANY_PORT,
        parties=tuple(shared.rows),
        rows_at_least=shared.rows,
        policy=policy,
    )
    for member in made.of(Role.PARTY):
        source = shared.data.parties[member.name]
        shutil.copy(shared.schema, member.directory / "schema.toml")
        shutil.copy(source, member.directory / f"data{source.suffix}")
        _replace(member.config, '"data.csv"', f'"data{source.suffix}"')
    return made


def _start(made: Provisioned, children: Children, note: Note) -> None:
    (coordinator,) = made.of(Role.COORDINATOR)
    address_file = coordinator.directory / "state" / "address"
    children.start("coordinator", "coordinator", "start", "--config", str(coordinator.config))
    wait_for("coordinator", lambda: has_content(address_file), children, START_WITHIN_S)
    address = address_file.read_text(encoding="utf-8").strip()
    note(f"coordinator at {address}, mutual TLS; starting {len(made.of(Role.PARTY))} parties and the learner")
    for member in made.members:
        if member.role is not Role.COORDINATOR:
            _replace(member.config, f'"{ANY_PORT}"', f'"{address}"')
    for member in made.of(Role.PARTY):
        children.start(member.name, "party", "start", "--config", str(member.config))


def _replace(file: Path, old: str, new: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert old in text, f"{file} has no {old}"
    file.write_text(text.replace(old, new), encoding="utf-8")
