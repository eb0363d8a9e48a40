"""Many party nodes in one process, as threads, for tests of a coordinator that many are connected to."""

import os
import signal
import sys
import threading
from contextlib import ExitStack
from functools import partial
from pathlib import Path


def host_parties(*configs: str) -> None:
    """Run a party for each of these configurations until SIGTERM: the function of a process."""
    from dpcore.paillier.obfuscation import ObfuscatorPool
    from parties.answering import contribution
    from parties.config import PartyConfig
    from parties.node import PartyNode
    from radobase.logs import start_logging

    start_logging("info")
    # Little is encrypted here, and every node has its own table for obfuscators.
    contribution.ObfuscatorPool = partial(ObfuscatorPool, short_exponent_bits=512)  # type: ignore[misc,assignment]
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    with ExitStack() as opened:
        for config in configs:
            opened.enter_context(PartyNode(PartyConfig.load(Path(config))))
        sys.stdout.write(f"{len(configs)} parties run\n")
        sys.stdout.flush()
        ended.wait()
        # Each would wait for its threads in turn: the test has ended.
        os._exit(0)
