"""Baselines for the federated models: logistic regression on the rows themselves, pooled and by party."""

from dataclasses import asdict, dataclass
from statistics import median

import numpy as np
from sklearn.linear_model import LogisticRegression

from radofed.demo.tables import DemoData, Floats, Integers, read_xy

MOST_ITERATIONS = 5000


@dataclass(frozen=True)
class Baselines:
    """Test errors as fractions. best, median: over parties that train on their own rows alone."""

    logistic_pooled: float
    best_single_party: float
    median_single_party: float
    majority: float
    test_rows: int

    def errors(self) -> dict[str, float]:
        """All errors by name."""
        return {name: error for name, error in asdict(self).items() if name != "test_rows"}


def baselines(data: DemoData) -> Baselines:
    """Train every baseline on the demo's files and test it on the held-out rows.

    Logistic regression is scikit-learn's, with its default C. A party with one class predicts that class. The majority
    is that of the pooled training rows.
    """
    x_test, y_test = read_xy([data.test], data.schema)
    parts = [read_xy([file], data.schema) for file in data.parties.values()]
    x, y = np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])
    alone = [_error(*part, x_test, y_test) for part in parts if len(part[1])]
    majority = 1 if 2 * int((y > 0).sum()) >= len(y) else -1
    return Baselines(
        logistic_pooled=_error(x, y, x_test, y_test),
        best_single_party=min(alone),
        median_single_party=median(alone),
        majority=float(np.mean(y_test != majority)),
        test_rows=len(y_test),
    )


def _error(x: Floats, y: Integers, x_test: Floats, y_test: Integers) -> float:
    if len(np.unique(y)) == 1:
        return float(np.mean(y_test != y[0]))
    classifier = LogisticRegression(max_iter=MOST_ITERATIONS).fit(x, y)
    return float(np.mean(classifier.predict(x_test) != y_test))
