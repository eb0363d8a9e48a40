"""Run by regressions in diffprivlib's own environment: `python diffprivlib_regression_worker.py JOB.npz`, JSON out.

The job: train (rows without the bias, in [-1, 1]), labels (in [-1, 1]), epsilon, draws. Printed: for each draw the
weights, the bias last.
"""

import json
import sys
import warnings

import numpy as np
from diffprivlib.models import LinearRegression


def main() -> None:
    warnings.simplefilter("ignore")
    job = np.load(sys.argv[1])
    print(json.dumps([_weights(job, seed) for seed in range(int(job["draws"]))]))


def _weights(job: "np.lib.npyio.NpzFile", seed: int) -> list[float]:
    model = LinearRegression(
        epsilon=float(job["epsilon"]), bounds_X=(-1.0, 1.0), bounds_y=(-1.0, 1.0), random_state=seed
    )
    model.fit(job["train"], job["labels"])
    return [*map(float, model.coef_), float(model.intercept_)]


if __name__ == "__main__":
    main()
