"""Claim: on tables that the choice of its setting did not see, additive is not worse than newton, and beats its peers.

The setting of `PrivateAdditive` was chosen on the tables of benchmarks.additive. Here it is as it is there, on public
tables that were picked before any result was known, and on scikit-learn's. Two criteria, at each epsilon:

- newton: the error is at most 0.2 points, and twice the standard error paired over folds, above `PrivateNewton`'s;
- peers: with 4,000 rows or more, the mean error is below that of the best private peer of benchmarks.private_curves
  with the same epsilon, delta and neighbours, newton among them. One of them, noisy descent, has the functions that
  ours chose, which it gets for free; the criterion is checked without it, too.

The tables are read from the directory in the environment variable RADOFED_TABLES, in the format of ../shared/data.
"""

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks.additive import DRAWS, LOGISTIC, NEWTON, OURS, TREES, WITHIN_NEWTON, Compared
from benchmarks.additive import EPSILONS as EPSILONS_BESIDE_NEWTON
from benchmarks.datasets import DataSet, Rule, packaged, read
from benchmarks.environments import UnavailableError, environment
from benchmarks.measuring import Measure, Report, Table
from benchmarks.private_curves import DESCENT, PINS, STATED_EPSILON, best_peer, compared
from benchmarks.private_curves import EPSILONS as EPSILONS_BESIDE_PEERS
from benchmarks.private_peers import Paired
from benchmarks.record_level import DELTA, PARTIES

VARIABLE = "RADOFED_TABLES"
FOLDS, QUICK_FOLDS = 5, 3
ROWS_FOR_PEERS = 4000
MEDIAN_HOUSE_VALUE = 179_700

# Dates, names, case numbers, what a score or a later arrest says, and texts of hundreds of values.
COMPAS_LEFT_OUT = (
    "id compas_screening_date age_cat decile_score c_jail_in c_jail_out c_case_number c_offense_date c_arrest_date "
    "c_days_from_compas c_charge_desc is_recid r_case_number r_charge_degree r_days_from_arrest r_offense_date "
    "r_charge_desc r_jail_in r_jail_out is_violent_recid vr_case_number vr_charge_degree vr_offense_date "
    "vr_charge_desc type_of_assessment score_text screening_date v_type_of_assessment v_decile_score v_score_text "
    "v_screening_date in_custody out_custody start end event"
)
SETS: dict[str, Rule] = {
    "spambase": (("spambase",), lambda label: label == "1", ()),
    "phoneme": (("phoneme",), lambda label: label == "1", ()),
    "mammography": (("mammography",), lambda label: label == "1", ()),
    "bank_marketing": (("bank_marketing",), lambda label: label == "yes", ("duration",)),
    "htru2": (("htru2",), lambda label: label == "1", ()),
    "credit_default": (("credit_default",), lambda label: label == "1", ("ID",)),
    "shoppers": (("shoppers",), lambda label: label == "TRUE", ()),
    "compas": (("compas",), lambda label: label == "1", tuple(COMPAS_LEFT_OUT.split())),
    "letter": (("letter",), lambda label: label <= "M", ()),
    "electricity": (("electricity",), lambda label: label == "UP", ()),
    "telco_churn": (("telco_churn",), lambda label: label == "Yes", ("customerID",)),
    "wine_red": (("wine_red",), lambda label: int(label) >= 6, ()),
    "california_housing": (("california_housing",), lambda label: float(label) > MEDIAN_HOUSE_VALUE, ()),
    "german_credit": (("german_credit",), lambda label: label == "2", ()),
    "mushroom": (("mushroom",), lambda label: label == "p", ()),
}
QUICK_SETS = ("phoneme", "wine_red")
SHOWN = (OURS, NEWTON, LOGISTIC, TREES)


@dataclass(frozen=True, eq=False)
class Found:
    """The results on one table. peers: by epsilon, test errors in % by method, one for each fold; empty if not run."""

    rows: int
    beside: Compared
    peers: Mapping[float, Mapping[str, list[float]]]

    @property
    def name(self) -> str:
        """Of the table."""
        return self.beside.name

    def within(self, epsilon: float) -> bool:
        """Whether the criterion beside newton holds."""
        return self.beside.within(epsilon)

    def best(self, epsilon: float, *, with_our_functions: bool = True) -> tuple[str, Paired]:
        """The best peer, and the points of ours above it. with_our_functions: whether descent on ours is a peer."""
        errors = {way: values for way, values in self.peers[epsilon].items() if with_our_functions or way != DESCENT}
        best = best_peer(errors)
        return best, Paired.of(errors[OURS], errors[best])

    def as_setting(self) -> dict[str, Any]:
        """The entry of the table in the JSON file."""
        below: dict[str, Any] = {}
        without: dict[str, Any] = {}
        for epsilon in self.peers:
            for entries, with_our_functions in ((below, True), (without, False)):
                best, apart = self.best(epsilon, with_our_functions=with_our_functions)
                entries[f"{epsilon:g}"] = {
                    "peer": best,
                    "points": apart.mean,
                    "standard_error": apart.error,
                    "holds": apart.mean < 0,
                }
        return self.beside.as_setting() | {
            "rows": self.rows,
            "above_best_peer": below,
            "above_best_peer_with_functions_of_its_own": without,
        }


def found_on(data: DataSet, folds: int, python: Any, *, with_peers: bool) -> Found:
    """Run everything on one table. python: of interpret's environment, or None."""
    beside = Compared.on(data, folds)
    rows = len(data.positive)
    epsilons = EPSILONS_BESIDE_PEERS if with_peers and rows >= ROWS_FOR_PEERS else ()
    return Found(rows, beside, {epsilon: compared(data, folds, epsilon, python) for epsilon in epsilons})


def tables(*, everything: bool) -> tuple[list[DataSet], list[str]]:
    """The tables that are there, and notes on those that are not."""
    names = tuple(SETS) if everything else QUICK_SETS
    own = packaged()
    if not os.environ.get(VARIABLE):
        return own, [f"Skipped {', '.join(names)}: the environment variable {VARIABLE} names no directory."]
    folder = Path(os.environ[VARIABLE])
    there = [name for name in names if (folder / f"{name}.csv.gz").is_file()]
    missing = [name for name in names if name not in there]
    notes = [f"Skipped {', '.join(missing)}, which the directory of {VARIABLE} does not hold."] if missing else []
    return [read(name, SETS[name], folder) for name in there] + own, notes


def run(*, everything: bool = False) -> Report:
    """Measure."""
    folds = FOLDS if everything else QUICK_FOLDS
    read_tables, notes = tables(everything=everything)
    python = None
    try:
        python = environment("interpret", PINS, "interpret.privacy") if everything else None
    except UnavailableError as error:
        notes.append(f"Without interpret: {error}.")
    if not everything:
        notes.append("Skipped the other tables and the peers: run with --all.")
    found = []
    for data in read_tables:
        start = time.perf_counter()
        found.append(found_on(data, folds, python, with_peers=everything))
        print(f"  {data.name}: {time.perf_counter() - start:.1f} s", file=sys.stderr)
    return report_of(found, folds, notes)


def report_of(found: list[Found], folds: int, notes: list[str]) -> Report:
    """The report of these results."""
    return Report(
        "unseen_tables",
        (__doc__ or "").partition("\n")[0],
        {
            "epsilons": EPSILONS_BESIDE_NEWTON,
            "epsilons_beside_peers": EPSILONS_BESIDE_PEERS,
            "delta": DELTA,
            "parties": PARTIES,
            "folds": folds,
            "draws": DRAWS,
            "sets": [one.as_setting() for one in found],
        },
        [measure for one in found for measure in [*one.beside.measures(), *_measures_of_peers(one)]],
        [],
        [_beside_newton(found, folds), *([_beside_peers(found, folds)] if any(one.peers for one in found) else [])],
        _findings(found)
        + notes
        + [
            f"One repeat is a fold, the mean of {DRAWS} draws of noise for the federated estimators and descent.",
            "Epsilon is of all releases of a fit in composition: a replaced record, the learner alone.",
            "Bounds of features are the training rows' quantiles, uncounted, for all ways alike.",
        ],
    )


def _measures_of_peers(one: Found) -> list[Measure]:
    return [
        Measure.of(f"{one.name}, epsilon {epsilon:g}: {way}", "% test error", values)
        for epsilon, errors in one.peers.items()
        for way, values in errors.items()
    ]


def _beside_newton(found: list[Found], folds: int) -> Table:
    header = ("mean test error, %", "epsilon", *SHOWN, "above newton", "holds", *(f"AUC, {way}" for way in SHOWN))
    return Table(
        f"Tables that the choice did not see, delta = {DELTA:g}, {folds} folds",
        header,
        [
            (
                f"{one.name} ({one.beside.training_rows} x {one.beside.d})",
                f"{epsilon:g}",
                *(f"{one.beside.mean(way, epsilon):.2f}" for way in SHOWN),
                str(one.beside.apart(NEWTON, epsilon)),
                _yes(one.within(epsilon)),
                *(f"{one.beside.areas[way][i].mean():.3f}" for way in SHOWN),
            )
            for one in found
            for i, epsilon in enumerate(EPSILONS_BESIDE_NEWTON)
        ],
    )


def _beside_peers(found: list[Found], folds: int) -> Table:
    ways = next(list(errors) for one in found for errors in one.peers.values())
    rows = []
    for one in found:
        for epsilon, errors in one.peers.items():
            best, apart = one.best(epsilon)
            means = (f"{np.mean(errors[way]):.1f}" for way in ways)
            rows.append((one.name, f"{epsilon:g}", *means, best, str(apart), _yes(apart.mean < 0)))
    header = ("mean test error, %", "epsilon", *ways, "best peer", "above it", "holds")
    return Table(f"Beside private peers, delta = {DELTA:g}, {folds} folds", header, rows)


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"


def _findings(found: list[Found]) -> list[str]:
    """Both criteria at each epsilon, with the tables where they do not hold."""
    notes = []
    for epsilon in EPSILONS_BESIDE_NEWTON:
        beyond = [f"{one.name} {one.beside.apart(NEWTON, epsilon)}" for one in found if not one.within(epsilon)]
        notes.append(
            f"Beside newton at epsilon {epsilon:g}: within {WITHIN_NEWTON} points and twice the standard error on "
            f"{len(found) - len(beyond)} of {len(found)} tables{'; beyond: ' if beyond else ''}{', '.join(beyond)}."
        )
    for epsilon in EPSILONS_BESIDE_PEERS:
        measured = [one for one in found if epsilon in one.peers]
        if not measured:
            continue
        for with_our_functions in (True, False):
            bests = {one.name: one.best(epsilon, with_our_functions=with_our_functions) for one in measured}
            behind = [f"{name} {apart} of {best}" for name, (best, apart) in bests.items() if apart.mean >= 0]
            notes.append(
                f"Beside the best peer{'' if with_our_functions else ' with functions of its own'} at epsilon "
                f"{epsilon:g}: better on {len(measured) - len(behind)} of {len(measured)} tables of "
                f"{ROWS_FOR_PEERS:,} rows or more{'; not on: ' if behind else ''}{', '.join(behind)}."
            )
    return notes


def draw(report: Report, figure: Figure) -> None:
    """Points of error above newton and above the best peer at the stated epsilon, with twice the standard error."""
    sets = report.setting["sets"]
    key = f"{STATED_EPSILON:g}"
    panels = figure.subplots(1, 2, sharey=True)
    for axes, what, title in zip(panels, ("above_newton", "above_best_peer"), ("newton", "the best peer"), strict=True):
        shown = [(place, one[what][key]) for place, one in enumerate(sets) if key in one[what]]
        for place, value in shown:
            color = "tab:blue" if value["holds"] else "tab:red"
            axes.barh(place, value["points"], xerr=2 * value["standard_error"], color=color)
        axes.axvline(WITHIN_NEWTON if what == "above_newton" else 0.0, color="black", linewidth=0.8, linestyle="--")
        axes.set_xlabel(f"points of error above {title}, epsilon {key}", fontsize=8)
    panels[0].set_yticks(range(len(sets)), [one["name"] for one in sets], fontsize=8)
    panels[0].invert_yaxis()
