"""Run by record_level in diffprivlib's own environment: `python diffprivlib_worker.py JOB.npz`, JSON out.

The job: train, test (rows without the bias), train_labels, test_labels, norm, epsilons, penalties (C), draws. Printed:
test error in %, as nested lists [epsilon][penalty][draw]; null if a fit failed.
"""

import json
import sys
import warnings

import numpy as np
from diffprivlib.models import LogisticRegression


def main() -> None:
    warnings.simplefilter("ignore")
    job = np.load(sys.argv[1])
    print(json.dumps([[_errors(job, epsilon, c) for c in job["penalties"]] for epsilon in job["epsilons"]]))


def _errors(job: "np.lib.npyio.NpzFile", epsilon: float, penalty: float) -> list[float | None]:
    return [_error(job, float(epsilon), float(penalty), draw) for draw in range(int(job["draws"]))]


def _error(job: "np.lib.npyio.NpzFile", epsilon: float, penalty: float, seed: int) -> float | None:
    model = LogisticRegression(
        epsilon=epsilon, data_norm=float(job["norm"]), C=penalty, max_iter=1000, random_state=seed
    )
    try:
        model.fit(job["train"], job["train_labels"])
    except (ValueError, FloatingPointError):
        return None
    return 100.0 * float(np.mean(model.predict(job["test"]) != job["test_labels"]))


if __name__ == "__main__":
    main()
