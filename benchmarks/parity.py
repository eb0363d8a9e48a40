"""Claim: a parity of 256 bits is learned privately in under a second, and joint accounting of all runs saves most rows.

Elimination is compared, in the same run, with Python's own big integers, one per row, the obvious code without NumPy;
both start from the same Booleans of the same rows kept. The accounting is compared with KLNRS 2008: runs that keep a
row with epsilon / 4 each, with epsilon divided among them, at the best number of runs. Half of the difference is the
constant 4, where 2 is enough; the rest is the division.
"""

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from benchmarks.measuring import MEASURE_HEADER, Measure, Report, Table, draw_seconds, ratio, require, take_turns
from dpcore.randomness.sources import SeededRandom
from dpcore.research.parity import flips, learn_parity, parity_guarantee, solve

D, ALPHA, BETA, EPSILON = 256, 0.1, 0.05, Fraction(1)
# With --all: the rows for a tenth of both.
SMALL_ALPHA, SMALL_EPSILON = 0.01, Fraction(1, 10)
SEED = 1

LEARNER = "learn_parity, all rows"
OURS = "gf2.solve, rows kept"
INTEGERS = "Python integers, rows kept"


def eliminate(rows: NDArray[np.bool_], right: NDArray[np.bool_]) -> int | None:
    """What a user would write: the unique solution as an integer, first bit lowest; None if it is not unique."""
    d = rows.shape[1]
    octets = np.packbits(np.column_stack([rows, right]), axis=1, bitorder="little")
    basis: dict[int, int] = {}
    for octet in octets:
        row = int.from_bytes(octet.tobytes(), "little")
        while row:
            # The lowest bit leads; a row left with only the right side is a contradiction.
            lead = (row & -row).bit_length() - 1
            if lead == d:
                return None
            if lead not in basis:
                basis[lead] = row
                break
            row ^= basis[lead]
    if len(basis) < d:
        return None
    solution = 0
    for lead in range(d - 1, -1, -1):
        known = (basis[lead] & solution).bit_count() & 1
        solution |= (known ^ basis[lead] >> d & 1) << lead
    return solution


def rows_where_runs_divide_epsilon(d: int, alpha: float, beta: float, epsilon: Fraction) -> int:
    """Rows by the same proof of accuracy, with the runs of KLNRS: fail with 1/2, keep with epsilon / (4 runs)."""
    fewest = math.inf
    for runs in range(math.floor(-math.log2(beta)) + 1, 64):
        wrong = d * math.log(2) - math.log(2 * (beta - 2.0**-runs))
        fewest = min(fewest, wrong / -math.log1p(-alpha * float(epsilon) / (4 * runs)))
    return math.ceil(fewest)


def run(*, everything: bool = False) -> Report:
    cases = [(ALPHA, EPSILON), (SMALL_ALPHA, SMALL_EPSILON)] if everything else [(ALPHA, EPSILON)]
    measures: list[Measure] = []
    ratios: list[Measure] = []
    tables: list[Table] = []
    settings = []
    for alpha, epsilon in cases:
        of_case, ratios_of_case, setting = _case(alpha, epsilon)
        title = (
            f"Parity of {D} bits, alpha={alpha:g} beta={BETA:g} epsilon={float(epsilon):g}, {setting['rows']:,} rows"
        )
        tables.append(Table(title, MEASURE_HEADER, [m.cells() for m in of_case]))
        tables.append(Table("Ratios", MEASURE_HEADER, [r.cells() for r in ratios_of_case]))
        measures += of_case
        ratios += ratios_of_case
        settings.append(setting)
    notes = [
        f"Rows at alpha={s['alpha']:g}, epsilon={s['epsilon']:g}: {s['rows']:,} counted together, "
        f"{s['rows_where_runs_divide_epsilon']:,} where runs divide epsilon."
        for s in settings
    ]
    return Report("parity", (__doc__ or "").partition("\n")[0], {"cases": settings}, measures, ratios, tables, notes)


def _case(alpha: float, epsilon: Fraction) -> tuple[list[Measure], list[Measure], dict[str, object]]:
    coins, guarantee = parity_guarantee(D, alpha, BETA, epsilon)
    generator, random = np.random.default_rng(SEED), SeededRandom(SEED)
    points = generator.random((guarantee.rows, D), dtype=np.float32) < 0.5
    truth = generator.random(D) < 0.5
    labels = np.logical_xor.reduce(points & truth, axis=1)
    kept = flips(coins.keep, guarantee.rows, random)
    rows, right = points[kept], labels[kept]
    space = solve(rows, right)
    require(space is not None and space.dimension == 0 and bool((space.particular == truth).all()), "solve is wrong")
    expected = int.from_bytes(np.packbits(truth, bitorder="little").tobytes(), "little")
    require(eliminate(rows, right) == expected, "the elimination with integers is wrong")
    seconds = take_turns(
        {
            LEARNER: lambda: learn_parity(points, labels, coins, random),
            OURS: lambda: solve(rows, right),
            INTEGERS: lambda: eliminate(rows, right),
        }
    )
    at = f", {guarantee.rows:,} rows"
    measures = [Measure.of(way + at, "s", values) for way, values in seconds.items()]
    ratios = [ratio(f"{INTEGERS} / {OURS}{at}", seconds[INTEGERS], seconds[OURS])]
    setting: dict[str, object] = {
        "d": D,
        "alpha": alpha,
        "beta": BETA,
        "epsilon": float(epsilon),
        "rows": guarantee.rows,
        "rows_kept": int(kept.sum()),
        "rows_where_runs_divide_epsilon": rows_where_runs_divide_epsilon(D, alpha, BETA, epsilon),
        "keep": float(coins.keep),
        "runs": coins.runs,
    }
    return measures, ratios, setting


draw = draw_seconds
