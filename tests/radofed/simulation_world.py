"""A synthetic table for simulations, and estimators that inspect their input."""

import gzip
from typing import ClassVar

import numpy as np

import radofed
from dpcore.records.schema import Schema

ROWS = 240


def made_up(path, rows=ROWS, *, label="y", classes=("in", "out")):
    random = np.random.RandomState(8)
    x = random.normal(size=(rows, 3))
    member = random.choice(["yes", "no"], rows)
    kind = random.choice(["a", "b", "c"], rows)
    margin = x[:, 0] - 0.7 * x[:, 1] + 0.8 * (member == "yes") - 0.5 * (kind == "c") + 0.4 * random.normal(size=rows)
    labels = np.where(margin > 0.3, *classes)
    site = np.array(["north", "south", "east", "west", "isle"])[np.minimum(random.geometric(0.4, rows) - 1, 4)]
    columns = {"x0": x[:, 0], "x1": x[:, 1], "x2": x[:, 2], "member": member, "kind": kind, "site": site, label: labels}
    columns["same"] = np.full(rows, 7)
    lines = [",".join(columns)]
    lines += [",".join(str(values[i]) for values in columns.values()) for i in range(rows)]
    text = "\n".join(lines) + "\n"
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


SCHEMA = Schema.from_toml("""
schema_version = 1
name = "made-up"
[label]
column = "y"
positive = ["in"]
[[features]]
name = "x0"
type = "real"
lower = -3.0
upper = 3.0
out_of_bounds = "clip"
[[features]]
name = "same"
type = "real"
lower = 0.0
upper = 10.0
[[features]]
name = "member"
type = "boolean"
true = ["yes"]
false = ["no"]
""")


def simulate(table, **options):
    """With a number of rados alone, those of the plain design."""
    if "rados" in options:
        options = {"design": "plain", **options}
    return radofed.simulate(
        table, **{"label": "y", "positive": "in", "parties": 4, "folds": 3, "seed": 2, "workers": 0, **options}
    )


def figures(result):
    """All fields of the rows that do not depend on the clock."""
    return [(row.fold, row.learner, row.sees, row.test_error, row.auc) for row in result.rows]


class Recorder:
    """A custom estimator that keeps every release it receives."""

    seen: ClassVar[list] = []

    def fit_release(self, release):
        Recorder.seen.append(release)
        self.theta = release.rados.mean(axis=0)
        return self

    def decision_function(self, X):
        return X @ self.theta


def recorded(table, **options):
    Recorder.seen = []
    result = simulate(table, estimators={"mine": Recorder()}, **options)
    return result, list(Recorder.seen)
