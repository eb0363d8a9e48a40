"""Runs inside HEU's own environment: `python heu_worker.py job.npz`. Prints the figures as JSON."""

import json
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np
from heu import phe


def timed(run: Callable[[], Any], repeats: int) -> tuple[Any, list[float]]:
    """The last result of `run`, and the seconds of each repeat after a warm-up."""
    seconds = []
    for repeat in range(repeats + 1):
        begun = time.perf_counter()
        result = run()
        if repeat:
            seconds.append(time.perf_counter() - begun)
    return result, seconds


def main(job: str) -> None:
    """Encrypt `mine` value by value, add `theirs`, and decrypt the sums, each in the calling thread."""
    given = np.load(job)
    mine, theirs = given["mine"].tolist(), given["theirs"].tolist()
    repeats, passes = int(given["repeats"]), int(given["passes"])
    kit = phe.setup(phe.SchemaType.ZPaillier, int(given["key_bits"]))
    encryptor, decryptor, evaluator = kit.encryptor(), kit.decryptor(), kit.evaluator()
    ours, encrypt = timed(lambda: [encryptor.encrypt_raw(value) for value in mine], repeats)
    others = [encryptor.encrypt_raw(value) for value in theirs]

    def add() -> Any:
        for _ in range(passes):
            sums = [evaluator.add(a, b) for a, b in zip(ours, others, strict=True)]
        return sums

    sums, added = timed(add, repeats)
    opened, decrypt = timed(lambda: [decryptor.decrypt_raw(value) for value in sums], repeats)
    if opened != [a + b for a, b in zip(mine, theirs, strict=True)]:
        sys.exit("HEU opens to other values")
    found = {
        "encrypt": encrypt,
        "add": [seconds / passes for seconds in added],
        "decrypt": decrypt,
        "version": version("sf-heu"),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
