"""What breaks in tests of processes: lines between members, disks, and random faults that are drawn from a seed."""

import heapq
import os
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tests.waiting import HANG_S

if TYPE_CHECKING:
    from tests.federation.processes import ProcessFederation


def fill(disk: Path) -> None:
    """Leave no free byte on the file system of the fixture `small_disk`."""
    for size in (65536, 4096, 1):
        with (disk / f"filling-{size}").open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(size))
    assert os.statvfs(disk).f_bavail == 0


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


class Silent:
    """Accepts connections at an address, reads, and never answers."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self._listener = socket.create_server((host, int(port)))
        self._taken: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def connections(self) -> int:
        return len(self._taken)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                self._taken.append(self._listener.accept()[0])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        for each in self._taken:
            each.close()


class RandomFaults:
    """Kills processes and spoils lines in a thread of its own until `stop`, and repairs each after a random time.

    Every kind of fault occurs once before any occurs again. A fault waits until it can occur. The seed decides kinds,
    targets and times; which message a fault meets depends on the machine.

    lines: of parties and of learners. learners: starts a learner's process, by name. happened: how often each fault
    occurred. notes: what was done, and when.
    """

    def __init__(
        self,
        federation: "ProcessFederation",
        lines: Mapping[str, Line],
        learners: Mapping[str, Callable[[], None]],
        *,
        seed: int,
        pause_s: float,
        lasts_s: float,
        rounds: int | None = None,
    ) -> None:
        """pause_s: the longest time between two faults. lasts_s: the longest time until a fault is repaired.

        rounds: how often each kind of fault is tried; None for until `stop`.
        """
        self._federation, self._lines, self._learners = federation, lines, learners
        self._random = random.Random(seed)
        self._pause_s, self._lasts_s, self._rounds = pause_s, lasts_s, rounds
        self._parties = [name for name in lines if name not in learners]
        self._stopping = threading.Event()
        self._repairs: list[tuple[float, int, Callable[[], None]]] = []
        self._spoiled: set[str] = set()
        self._starts: Counter[str] = Counter()
        self._begun = time.monotonic()
        self.happened: Counter[str] = Counter()
        self.notes: list[str] = []
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="faults")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the faults and repair everything: all processes run and all lines are whole."""
        self._stopping.set()
        self._thread.join()
        if self.failure is not None:
            raise self.failure
        self._repair(float("inf"))

    def _run(self) -> None:
        kinds: list[Callable[[], bool]] = []
        try:
            while not self._stopping.is_set():
                if not kinds:
                    if self._rounds is not None:
                        self._rounds -= 1
                        if self._rounds < 0:
                            self._wait_and_repair(float("inf"))
                            return
                    kinds = [
                        self._kill_party,
                        self._kill_coordinator,
                        self._kill_learner,
                        self._cut,
                        self._freeze,
                        self._delay,
                    ]
                    self._random.shuffle(kinds)
                kind = kinds.pop()
                while not kind() and not self._stopping.is_set():
                    self._wait_and_repair(0.2)
                self._wait_and_repair(self._random.uniform(0.2, 1.0) * self._pause_s)
        except BaseException as error:
            self.failure = error
            raise

    def _wait_and_repair(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self._stopping.wait(0.05):
            self._repair(time.monotonic())

    def _note(self, what: str) -> None:
        self.notes.append(f"{time.monotonic() - self._begun:7.2f} s  {what}")

    def _later(self, repair: Callable[[], None]) -> None:
        at = time.monotonic() + self._random.uniform(0.1, 1.0) * self._lasts_s
        heapq.heappush(self._repairs, (at, len(self.notes), repair))

    def _repair(self, now: float) -> None:
        while self._repairs and self._repairs[0][0] <= now:
            heapq.heappop(self._repairs)[2]()

    def _ups(self, name: str) -> int:
        """How often a process has started up."""
        return self._federation.log(name).count('"listening"' if name == "coordinator" else '"started"')

    def _runs(self, name: str) -> bool:
        """Whether a process has started up since it was last killed: or a slow machine would make no progress."""
        process = self._federation.processes.get(name)
        return self._ups(name) > self._starts[name] and process is not None and process.poll() is None

    def _kill(self, name: str, kind: str, start: Callable[[], None] | None = None) -> bool:
        if not self._runs(name):
            return False
        self._starts[name] = self._ups(name)
        self._federation.kill(name)
        self.happened[kind] += 1
        self._note(f"kill {name}")

        def restart() -> None:
            self._note(f"start {name}")
            if start is None:
                self._federation.start(name)
            else:
                start()

        self._later(restart)
        return True

    def _kill_party(self) -> bool:
        return self._kill(self._random.choice(self._parties), "kill party")

    def _kill_coordinator(self) -> bool:
        return self._kill("coordinator", "kill coordinator")

    def _kill_learner(self) -> bool:
        name = self._random.choice(sorted(self._learners))
        return self._kill(name, "kill learner", self._learners[name])

    def _spoil(self, kind: str, spoil: Callable[[Line], None]) -> bool:
        name = self._random.choice(sorted(self._lines))
        if name in self._spoiled:
            return False
        self._spoiled.add(name)
        spoil(self._lines[name])
        self.happened[kind] += 1
        self._note(f"{kind} {name}")

        def heal() -> None:
            self._note(f"heal {name}")
            self._spoiled.discard(name)
            self._lines[name].heal()

        self._later(heal)
        return True

    def _cut(self) -> bool:
        return self._spoil("cut", Line.cut)

    def _freeze(self) -> bool:
        return self._spoil("freeze", Line.freeze)

    def _delay(self) -> bool:
        seconds = self._random.uniform(0.02, 0.3)
        return self._spoil("delay", lambda line: line.delay(seconds))
