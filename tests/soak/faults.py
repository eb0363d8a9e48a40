"""Random faults of a federation of processes, drawn from a seed: kills, restarts, lines that are cut or slow."""

import heapq
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping

from tests.federation import Line, ProcessFederation


class RandomFaults:
    """Kills processes and spoils lines in a thread of its own until `stop`, and repairs each after a random time.

    Every kind of fault occurs once before any occurs again. A fault waits until it can occur. The seed decides kinds,
    targets and times; which message a fault meets depends on the machine.

    lines: of parties and of learners. learners: starts a learner's process, by name. happened: how often each fault
    occurred. notes: what was done, and when.
    """

    def __init__(
        self,
        federation: ProcessFederation,
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
