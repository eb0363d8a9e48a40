"""Run by private_curves in interpret's own environment: `python interpret_worker.py JOB.npz`, JSON out.

The job: train, test (rows without the bias and categories, in [-1, 1]), train_categories, test_categories (integers, -1
where missing), train_labels, test_labels, settings (learning rate and rounds), budgets (epsilon of an added or removed
record), delta, seed. Printed: test error in %, as nested lists [setting][budget].
"""

import json
import sys
import warnings
from typing import Any, TypeAlias

import numpy as np
from interpret.privacy import DPExplainableBoostingClassifier

Job: TypeAlias = "np.lib.npyio.NpzFile"


def main() -> None:
    warnings.simplefilter("ignore")
    job = np.load(sys.argv[1])
    errors = [
        [_error(job, float(rate), int(rounds), float(epsilon)) for epsilon in job["budgets"]]
        for rate, rounds in job["settings"]
    ]
    print(json.dumps(errors))


def _error(job: Job, rate: float, rounds: int, epsilon: float) -> float:
    numbers, categories = job["train"].shape[1], job["train_categories"].shape[1]
    model = DPExplainableBoostingClassifier(
        feature_types=["continuous"] * numbers + ["nominal"] * categories,
        # The same public bounds as ours.
        privacy_bounds=dict.fromkeys(range(numbers), (-1.0, 1.0)),
        learning_rate=rate,
        max_rounds=rounds,
        epsilon=epsilon,
        delta=float(job["delta"]),
        random_state=int(job["seed"]),
        n_jobs=1,
    )
    model.fit(_rows(job, "train"), (job["train_labels"] > 0).astype(int))
    positive = model.predict(_rows(job, "test")).astype(int) > 0
    return 100.0 * float(np.mean(positive != (job["test_labels"] > 0)))


def _rows(job: Job, part: str) -> Any:
    categories = job[f"{part}_categories"]
    if not categories.shape[1]:
        return job[part]
    return np.hstack([job[part].astype(object), categories.astype(str).astype(object)])


if __name__ == "__main__":
    main()
