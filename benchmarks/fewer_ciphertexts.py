"""Claim: with fraction bits chosen by statistics a query takes about a fifth fewer ciphertexts, and learns the same.

The sizes are computed: ciphertexts of each party for 1,000 rados, with 16 fraction bits, the most there are, and with
those that the plan chooses. The loss from fewer bits is measured: the same signatures are summed over the same rows,
truncated to f bits and to 30, and RadoBoost and the mean-variance estimator fit both. The distance between the two
thetas is compared with that between two independent draws of signatures, and so are the errors on other rows.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from benchmarks.datasets import SHARED, DataSet, packaged, shared
from benchmarks.measuring import MEASURE_HEADER, Measure, Report, Table, number, require
from dpcore.estimators.base import RadoClassifier, RadoSample
from dpcore.estimators.mean_variance import MeanVariance
from dpcore.estimators.radoboost import RadoBoost
from dpcore.paillier.packing import ciphertext_count
from dpcore.queries.kind import MOST_FRACTION_BITS, FractionBits, QueryLimits, fewest_ciphertexts, least_fraction_bits
from dpcore.queries.rados import RadosQuery
from dpcore.rados.designs import PlainDesign
from learner.requests import GROWTH

RADOS, KEY_BITS = 1000, 3072
ROWS = (200_000, 5_000_000, 50_000_000)
COORDINATES = (18, 100)
PARTIES = (4, 16, 400)
BITS = (2, 4, 6, 8, 9, 10, 12, 14, 16)
FULL = 30
DRAWS = 6
ROUNDS = 200
# Most rows that are summed, and the rows of the synthetic table.
MOST_ROWS = 20_000
ROWS_PER_BLOCK = 4096
# Fixed point is negligible if it moves theta by less than this share of the move between two draws of signatures.
LOST = 0.05
LEARNERS: dict[str, RadoClassifier] = {"RadoBoost": RadoBoost(ROUNDS), "mean-variance": MeanVariance()}

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Moved:
    """The effect of f fraction bits on an estimator: means over draws, relative to the effect of another draw.

    theta: |theta_f - theta_30| over |theta_30 - theta_30 of another draw|. points: how much larger its error is, in
    percentage points; spread_points: the standard deviation of the error between draws.
    """

    data: str
    learner: str
    bits: int
    theta: float
    points: float
    spread_points: float


def sizes() -> list[tuple[int, int, int, int, int, int, int]]:
    """(d, m, parties, ciphertexts with 16 fraction bits, with those chosen, slot bits and fraction bits chosen)."""
    query = RadosQuery(RADOS, PlainDesign())
    found = []
    for d in COORDINATES:
        for m in ROWS:
            for parties in PARTIES:
                limits = QueryLimits(GROWTH * m, parties, d)
                usual, chosen = (
                    fewest_ciphertexts(query, limits, bits, KEY_BITS)
                    for bits in (FractionBits.exactly(MOST_FRACTION_BITS), FractionBits.for_rados(RADOS))
                )
                counts = [ciphertext_count(query.length(d), encoding, KEY_BITS) for encoding in (usual, chosen)]
                require(counts[1] <= counts[0], "the plan chose more ciphertexts than 16 fraction bits take")
                found.append((d, m, parties, counts[0], counts[1], chosen.slot_bits, chosen.fraction_bits))
    return found


def _skewed() -> DataSet:
    """Features that fixed point affects most: positive, in a small part of their range, with a mean far from zero."""
    random = np.random.default_rng(0)
    numbers = random.gamma(1.0, size=(MOST_ROWS, 12)) * np.linspace(0.2, 5.0, 12)
    score = np.log(numbers + 0.01) @ random.normal(size=12) + random.normal(scale=2.0, size=MOST_ROWS)
    return DataSet("synthetic, skewed", numbers, np.empty((MOST_ROWS, 0), dtype=np.str_), score > np.median(score))


def _data_sets(*, everything: bool) -> list[DataSet]:
    chosen = [data for data in packaged() if data.name.startswith("breast")]
    if SHARED.is_dir():
        names = ("magic", "eeg_eye_state", "abalone", "adult") if everything else ("magic",)
        chosen += [data for data in shared(everything=True) if data.name in names]
    return [*chosen, _skewed()]


def moved(data: DataSet) -> list[Moved]:
    """The effect of each of BITS on each estimator on this table; half of the rows are for training."""
    random = np.random.default_rng(1)
    order = random.permutation(len(data.positive))[:MOST_ROWS]
    training, test = order[::2], order[1::2]
    features, signs = data.encode(training), np.where(data.positive, 1.0, -1.0)
    count = min(RADOS, len(training) // 2)
    theta: dict[tuple[str, int], list[Matrix]] = {}
    errors: dict[tuple[str, int], list[float]] = {}
    for _ in range(DRAWS):
        for bits, rados in _rados(features[training], signs[training], count, random).items():
            sample = RadoSample(rados=rados, rows=len(training))
            for name, learner in LEARNERS.items():
                found = learner.fit_release(sample).theta_
                wrong = float(np.mean(np.sign(features[test] @ found) != signs[test]))
                theta.setdefault((name, bits), []).append(found)
                errors.setdefault((name, bits), []).append(100 * wrong)
    return [_moved(data.name, name, bits, theta, errors) for name in LEARNERS for bits in BITS]


def _moved(data: str, name: str, bits: int, theta: dict[Any, list[Matrix]], errors: dict[Any, list[float]]) -> Moved:
    full, cut = np.array(theta[name, FULL]), np.array(theta[name, bits])
    apart = np.linalg.norm(full - np.roll(full, 1, axis=0), axis=1).mean()
    points = float(np.mean(errors[name, bits])) - float(np.mean(errors[name, FULL]))
    by_bits = float(np.linalg.norm(full - cut, axis=1).mean() / apart)
    return Moved(data, name, bits, by_bits, points, float(np.std(errors[name, FULL], ddof=1)))


def _rados(features: Matrix, signs: Matrix, count: int, random: np.random.Generator) -> dict[int, Matrix]:
    """Rados of one draw of signatures over features of each number of bits, (count, d) each."""
    widths = (*BITS, FULL)
    # The bias, like every coordinate, is truncated: 1 stays 1.
    cut = np.hstack([signs[:, np.newaxis] * np.trunc(features * 2.0**bits) / 2.0**bits for bits in widths])
    sums = np.zeros((count, cut.shape[1]))
    for first in range(0, len(cut), ROWS_PER_BLOCK):
        block = cut[first : first + ROWS_PER_BLOCK]
        sums += random.integers(0, 2, size=(count, len(block)), dtype=np.int8).astype(np.float64) @ block
    return dict(zip(widths, np.split(sums, len(widths), axis=1), strict=True))


def run(*, everything: bool = False) -> Report:
    found = sizes()
    shifts = [shift for data in _data_sets(everything=everything) for shift in moved(data)]
    least = least_fraction_bits(RADOS)
    worst = {name: max(s.theta for s in shifts if s.learner == name and s.bits == least) for name in LEARNERS}
    for name, value in worst.items():
        require(value < LOST, f"with {least} fraction bits {name} moves by {value:.2f} of what another draw does")
    fewer = [before / after for *_, before, after, _slot, _bits in found]
    measures = [
        Measure.of(f"theta moved by {bits} fraction bits, {name}", "of another draw's", values)
        for name in LEARNERS
        for bits in BITS
        if (values := [s.theta for s in shifts if s.learner == name and s.bits == bits])
    ]
    tables = [
        Table(
            f"Ciphertexts of each party, n={RADOS:,}, key of {KEY_BITS} bits",
            ("d, rows, parties", "16 fraction bits", "chosen", "slot bits", "fraction bits"),
            [
                (f"{d}, {m:,}, {parties}", f"{before:,}", f"{after:,}", str(slot), str(bits))
                for d, m, parties, before, after, slot, bits in found
            ],
        ),
        Table(
            f"What f fraction bits do; of {RADOS:,} rados the least is {least}",
            ("data, learner, f", "theta moved", "error, points", "between draws"),
            [
                (f"{s.data}, {s.learner}, {s.bits}", number(s.theta), f"{s.points:+.3f}", f"{s.spread_points:.3f}")
                for s in shifts
            ],
        ),
        Table("Ciphertexts", MEASURE_HEADER, [Measure.of("16 bits / chosen", "times", fewer).cells()]),
    ]
    notes = [
        "theta moved: the distance to theta from 30 bits, over the distance between thetas of two draws of signatures.",
        f"Each data set: {DRAWS} draws, at most {MOST_ROWS:,} rows, half of them for training.",
    ]
    setting = {"rados": RADOS, "key_bits": KEY_BITS, "growth": GROWTH, "draws": DRAWS, "rounds": ROUNDS}
    ratios = [Measure.of("ciphertexts with 16 fraction bits / chosen", "times", fewer)]
    return Report("fewer_ciphertexts", (__doc__ or "").partition("\n")[0], setting, measures, ratios, tables, notes)


def draw(report: Report, figure: Figure) -> None:
    """The move of theta by bits, for both estimators: medians over data sets with their extremes."""
    axes = figure.subplots()
    for name in LEARNERS:
        shown = [m for m in report.measures if m.what.endswith(name)]
        middle = [m.median for m in shown]
        spread = [[m.median - m.minimum for m in shown], [m.maximum - m.median for m in shown]]
        axes.errorbar(BITS, middle, yerr=spread, marker="o", label=name)
    axes.axvline(least_fraction_bits(RADOS), linestyle="--", color="black", label="least chosen")
    axes.axhline(LOST, linestyle=":", color="black")
    axes.set(xlabel="fraction bits", ylabel="theta moved / moved by another draw", yscale="log")
    axes.legend()
