"""Flower's SecAgg+ with federated averaging of logistic regression, in its own environment."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.environments import environment, work

PINS = ("flwr[simulation]==1.41.0", "scikit-learn==1.9.1", "numpy==2.4.6")
ROUNDS = 3
WORK_TIMEOUT_S = 600


@dataclass(frozen=True)
class Flower:
    """One run. rounds_s: seconds of each round; the first also starts the clients' processes. error: held-out, in %."""

    rounds_s: list[float]
    error: float


def flower(
    x: NDArray[np.float64],
    y: NDArray[np.int8],
    test_x: NDArray[np.float64],
    test_y: NDArray[np.int8],
    parties: int,
) -> Flower:
    """Run on rows in equal parts, one for each client, a process of Flower's simulation. Raises UnavailableError."""
    python = environment("flower", PINS, "flwr.simulation, ray, sklearn.linear_model")
    with tempfile.TemporaryDirectory(prefix="rado-flower-") as folder:
        np.save(Path(folder) / "x.npy", x)
        np.save(Path(folder) / "y.npy", y)
        job = {"rows": folder, "test_x": test_x, "test_y": test_y, "parties": parties, "rounds": ROUNDS}
        found = work(python, "flower_worker.py", job, WORK_TIMEOUT_S)
    scores = test_x @ np.array(found["coef"]) + found["intercept"]
    error = 100.0 * float(np.mean((scores > 0) != (test_y > 0)))
    return Flower(found["rounds_s"], error)
