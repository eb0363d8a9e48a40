"""A coordinator in a process of its own, for tests that stop or kill it."""

import json
import os
import subprocess
import sys
import time

from tests.coordinator.serving import serve_debugging
from tests.coordinator.world import Clients, World
from tests.forked import Forked
from tests.waiting import HANG_S

MAIN = "import sys; from tests.coordinator.serving import serve_debugging; serve_debugging(sys.argv[1])"


class Process:
    """A coordinator in a separate process. fresh: for what has to do with its memory (tests.forked).

    descriptors: the most files and sockets that the system lets it have, if it is fresh.
    """

    def __init__(self, world: World, *, fresh: bool = False, descriptors: int | None = None) -> None:
        self.world = world
        world.config.address_file.unlink(missing_ok=True)
        self.log = world.root / "coordinator.log"
        config = str(world.directories["coordinator"] / "coordinator.toml")
        self.process = (
            self._started_fresh(config, descriptors) if fresh else Forked(serve_debugging, (config,), self.log)
        )
        self.address = self._wait_for_address()
        self.clients = Clients(world, self.address)

    def _started_fresh(self, config: str, descriptors: int | None) -> subprocess.Popen[bytes]:
        limited = [] if descriptors is None else ["sh", "-c", f'ulimit -n {descriptors}; exec "$@"', "sh"]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [*limited, sys.executable, "-c", MAIN, config],
                stderr=log,
                env=os.environ | {"PYTHONPATH": os.pathsep.join([".", "protos"])},
            )

    def _wait_for_address(self) -> str:
        for _ in range(600):
            if self.world.config.address_file.exists():
                return self.world.config.address_file.read_text().strip()
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.05)
        raise AssertionError(self.log.read_text())

    def stop(self, number: int) -> int:
        self.process.send_signal(number)
        self.clients.close()
        return self.process.wait(HANG_S)

    def events(self) -> list[dict]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]
