"""A real federation for tests: processes on loopback, mutual TLS, files on disk."""

import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Self

from radofed.cli.entry_point import run
from radofed.provision import Provisioned, provision
from tests import forked
from tests.forked import Forked
from tests.waiting import HANG_S
from wire.roster import Role


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


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
        self, root: Path, *, parties: dict[str, str], schema: str, fresh: bool = False, **provisioning
    ) -> None:
        self.root = root
        self.fresh = fresh
        self.address = f"127.0.0.1:{free_port()}"
        self.made: Provisioned = provision(
            root / "federation",
            coordinator_address=self.address,
            parties=list(parties),
            **({"federation": "test"} | provisioning),
        )
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

    def put_on_a_line(self, name: str) -> "Line":
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
            self.processes[name] = Forked(forked.rado, arguments, file)
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


class Line:
    """A TCP proxy between one member and the coordinator: TLS passes through it unchanged.

    It can delay, trickle, freeze and cut, until `heal`. From `stall_after` on the member's data waits until `release`;
    it is lost with the process that sent it.
    """

    def __init__(self, target: str) -> None:
        host, port = target.rsplit(":", 1)
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._open = threading.Event()
        self.sent_bytes = 0
        self._stall_after_bytes: int | None = None
        self.stalled = threading.Event()
        self._delay_s = 0.0
        self._trickles = self._is_cut = False
        self._flowing = threading.Event()
        self._flowing.set()
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def stall_after(self, sent_bytes: int) -> None:
        """Let this many more bytes through."""
        self._open.clear()
        self.stalled.clear()
        self.sent_bytes, self._stall_after_bytes = 0, sent_bytes

    def release(self) -> None:
        self._stall_after_bytes = None
        self._open.set()

    def delay(self, seconds: float) -> None:
        """From now on each piece of at most 16 KiB takes this much longer, in both directions."""
        self._delay_s = seconds

    def trickle(self) -> None:
        """From now on the coordinator's data arrives at one byte a second."""
        self._trickles = True

    def freeze(self) -> None:
        """From now on no data arrives in either direction, and connections stay open."""
        self._flowing.clear()

    def cut(self) -> None:
        """End all connections, and refuse new ones."""
        with self._lock:
            self._is_cut = True
            self._end_connections()

    def heal(self) -> None:
        """Let data and connections through as at first. What was frozen arrives."""
        self._delay_s, self._trickles, self._is_cut = 0.0, False, False
        self._flowing.set()

    def close(self) -> None:
        self.release()
        self.heal()
        self._listener.close()
        with self._lock:
            self._end_connections()

    def _end_connections(self) -> None:
        """The caller holds the lock. The pumps close the sockets."""
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._target)
            except ConnectionRefusedError:
                near.close()
                continue
            except OSError:
                return
            with self._lock:
                if self._is_cut:
                    near.close()
                    far.close()
                    continue
                self._sockets |= {near, far}
            threading.Thread(target=self._pump, args=(near, far, True), daemon=True).start()
            threading.Thread(target=self._pump, args=(far, near, False), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, counted: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 14):
                if counted:
                    self.sent_bytes += len(data)
                    if self._stall_after_bytes is not None and self.sent_bytes > self._stall_after_bytes:
                        self.stalled.set()
                        self._open.wait(HANG_S)
                time.sleep(self._delay_s)
                self._flowing.wait(HANG_S)
                while self._trickles and not counted and len(data) > 1:
                    sink.sendall(data[:1])
                    data = data[1:]
                    time.sleep(1)
                sink.sendall(data)
        with self._lock:
            for end in (source, sink):
                self._sockets.discard(end)
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()
