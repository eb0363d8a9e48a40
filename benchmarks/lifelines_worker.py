"""Run by survival_tables in lifelines' own environment: `python lifelines_worker.py JOB.npz`, JSON out.

The job: kind, times, happened, and of a "curve" the borders, of "cox" the records x (rows, d). Printed: survival at
each border, or the log hazard ratios.
"""

import json
import sys
import warnings

import numpy as np
import pandas as pd
from lifelines import CoxPHFitter, KaplanMeierFitter

# Columns of one category add up to a constant.
PENALTY = 1e-4


def main() -> None:
    warnings.simplefilter("ignore")
    job = np.load(sys.argv[1])
    if str(job["kind"]) == "curve":
        fitted = KaplanMeierFitter().fit(job["times"], job["happened"])
        found = fitted.predict(job["borders"]).to_numpy()
    else:
        frame = pd.DataFrame(job["x"], columns=[f"x{place}" for place in range(job["x"].shape[1])])
        frame["time"], frame["happened"] = job["times"], job["happened"]
        found = CoxPHFitter(penalizer=PENALTY).fit(frame, "time", "happened").params_.to_numpy()
    print(json.dumps([float(value) for value in found]))


if __name__ == "__main__":
    main()
