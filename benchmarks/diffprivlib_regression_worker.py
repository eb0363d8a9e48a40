"""Run by regressions in diffprivlib's own environment: `python diffprivlib_regression_worker.py JOB.npz`, JSON out.

The job: folds, epsilons, draws, and for each fold train (rows without the bias) and labels, in [-1, 1]. Printed: the
weights, the bias last, as nested lists [epsilon][fold][draw].
"""

import json
import sys
import warnings

import numpy as np
from diffprivlib.models import LinearRegression


def main() -> None:
    warnings.simplefilter("ignore")
    job = np.load(sys.argv[1])
    found = [
        [
            [_weights(job, float(epsilon), fold, seed) for seed in range(int(job["draws"]))]
            for fold in range(job["folds"])
        ]
        for epsilon in job["epsilons"]
    ]
    print(json.dumps(found))


def _weights(job: "np.lib.npyio.NpzFile", epsilon: float, fold: int, seed: int) -> list[float]:
    model = LinearRegression(epsilon=epsilon, bounds_X=(-1.0, 1.0), bounds_y=(-1.0, 1.0), random_state=seed)
    model.fit(job[f"train{fold}"], job[f"labels{fold}"])
    return [*map(float, model.coef_), float(model.intercept_)]


if __name__ == "__main__":
    main()
