"""A real federation for tests: processes on loopback, mutual TLS, files on disk.

A fork server that has imported a node's modules once starts a process in 50 ms instead of a second. Such a process is
as real as one that a shell starts. Tests of a start itself (imports, memory, the command line) need
`ProcessFederation(fresh=True)`.
"""

import io
import itertools
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Self

from radofed.cli.entry_point import made_command, main, run
from radofed.provision import Provisioned, provision
from tests.federation.faults import Line
from tests.waiting import HANG_S, wait_until
from wire.roster import Role

# The fork server imports this module too, and the parser of all commands takes 20 ms.
made_command()
_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(
    [
        "radofed.cli.commands",
        "parties.node",
        "coordinator.server",
        "dpcore.records.compiled",
        "dpcore.rados.compiled",
        __name__,
    ]
)


def run_rado(*arguments: str) -> None:
    """`rado ARGUMENTS`, for Forked."""
    sys.argv = ["rado", *arguments]
    main()


def serve_debugging(config: str) -> None:
    """Serve on a free port and log everything, until a signal: the function of a process."""
    from coordinator.config import CoordinatorConfig
    from coordinator.server import serve

    loaded = CoordinatorConfig.load(Path(config))
    serve(loaded.model_copy(update={"listen": "127.0.0.1:0", "log_level": "debug"}))


def _run(function: Callable[..., None], arguments: tuple[str, ...], log: str, environment: dict[str, str]) -> None:
    os.setsid()
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    function(*arguments)


class Forked:
    """function(*arguments) in a process of its own, with the methods of subprocess.Popen that tests use.

    function: of a module that takes little to import.
    """

    def __init__(self, function: Callable[..., None], arguments: tuple[str, ...], log: Path) -> None:
        job = (function, arguments, str(log), dict(os.environ))
        # A daemon in the sense of multiprocessing: it is ended with this process.
        self._process = _SERVER.Process(target=_run, args=job, daemon=True)
        self._process.start()
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout_s: float | None = None) -> int:
        self._process.join(timeout_s)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("rado", timeout_s or 0)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self._process.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


# Systems give 32,768 and above to any socket that asks for no port in particular. Each test process begins elsewhere.
PORTS = range(10_000, 32_000)
_places = itertools.count(499 * os.getpid())


def free_port() -> int:
    """A port for a server that starts later: no other socket gets it until then."""
    return next(port for place in _places if _is_free(port := PORTS[place % len(PORTS)]))


def _is_free(port: int) -> bool:
    with socket.socket() as listener:
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def rado(*arguments: str, code: int = 0) -> dict:
    """Run `rado ... --format json` in this process, to save its start, and return the object that it prints."""
    printed, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(printed), redirect_stderr(errors):
        found = run([*arguments, "--format", "json"])
    assert found == code, printed.getvalue() + errors.getvalue()
    return json.loads(printed.getvalue())


class ProcessFederation:
    """A federation of processes: members in directories under `root`, their processes, and their logs.

    fresh: each node is started as a shell starts it, and not by a fork server.
    """

    def __init__(
        self,
        root: Path,
        *,
        parties: dict[str, str],
        schema: str,
        fresh: bool = False,
        address: str | None = None,
        **provisioning,
    ) -> None:
        self.root = root
        self.fresh = fresh
        self.address = address or f"127.0.0.1:{free_port()}"
        self.made: Provisioned = provision(
            root / "federation",
            coordinator_address=self.address,
            parties=list(parties),
            **({"federation": "test"} | provisioning),
        )
        (root / "schema.toml").write_text(schema)
        self.processes: dict[str, subprocess.Popen[bytes] | Forked] = {}
        self.lines: list[Line] = []
        for name, rows in parties.items():
            directory = self.directory(name)
            (directory / "schema.toml").write_text(schema)
            (directory / "data.csv").write_text(rows)

    def member(self, name: str):
        return next(m for m in self.made.members if m.name == name)

    @property
    def learner(self):
        return self.made.of(Role.LEARNER)[0]

    def directory(self, name: str) -> Path:
        return self.member(name).directory

    @property
    def config(self) -> tuple[str, str]:
        """The option of a learner's command that names its configuration."""
        return "--config", str(self.learner.config)

    @property
    def asking(self) -> tuple[str, ...]:
        """The options of a learner's command that asks: its configuration, and the schema that all share."""
        return *self.config, "--schema", str(self.root / "schema.toml")

    def queries(self) -> int:
        """How many queries the coordinator has, without questions whether parties would accept."""
        listed = rado("learner", "list", *self.config)["data"]["queries"]
        return sum(each["code"] != "ONLY_ASKED" for each in listed)

    def put_on_a_line(self, name: str) -> Line:
        """Connect a party to the coordinator through a line that can stall. Call it before the party starts."""
        line = Line(self.address)
        config = self.member(name).config
        config.write_text(config.read_text().replace(self.address, line.address))
        self.lines.append(line)
        return line

    def log(self, name: str) -> str:
        path = self.root / f"{name}.log"
        return path.read_text() if path.exists() else ""

    def start(self, name: str) -> None:
        member, file = self.member(name), self.root / f"{name}.log"
        arguments = (member.role.value, "start", "--config", str(member.config))
        if not self.fresh:
            self.processes[name] = Forked(run_rado, arguments, file)
            return
        with file.open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", "radofed", *arguments],
                stdout=log,
                stderr=log,
                env=os.environ | {"PYTHONPATH": ""},
                start_new_session=True,
            )

    def start_all(self, *names: str) -> None:
        for name in names or [m.name for m in self.made.members if m.role is not Role.LEARNER]:
            self.start(name)

    def serve(self, *keygen: str) -> dict:
        """Start all nodes, wait until they serve, and make the learner's key. keygen: options of its command."""
        self.start_all()
        wait_until(lambda: "listening" in self.log("coordinator"), what="the coordinator")
        # A party makes its ledger before it says so.
        parties = [member.name for member in self.made.of(Role.PARTY)]
        wait_until(lambda: all('"started"' in self.log(name) for name in parties), what="the parties")
        return rado("learner", "keygen", *self.config, *keygen)["data"]

    def stop(self, name: str, number: int = signal.SIGTERM, timeout_s: float = HANG_S) -> int:
        """Signal a process and return its exit code."""
        process = self.processes.pop(name)
        process.send_signal(number)
        return process.wait(timeout_s)

    def kill(self, name: str) -> None:
        self.stop(name, signal.SIGKILL)

    def close(self) -> None:
        for line in self.lines:
            line.close()
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(HANG_S)
        self.processes.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
