"""Claim: rados alone reveal edges and single bits without other protection; `joint` protects as the accounting states.

Three attacks. From plain rados alone, independent component analysis (scikit-learn's FastICA) finds the edges if there
are no more records than coordinates. With the signatures known, Lemma 9 (Nock, Patrini, Friedman, ICML 2015) returns
every edge exactly, once there are as many independent signatures as records. An adversary who knows everything except
one bit reads the signature off the unprotected columns of a DP-FEAT release, then the bit. Compared with `joint`, whose
noise on the sensitive column limits this adversary to what its epsilon and delta allow.
"""

import math
import warnings
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy import stats
from sklearn.decomposition import FastICA
from sklearn.exceptions import ConvergenceWarning

from benchmarks.measuring import REPEATS, Measure, Report, Table, require
from dpcore.accounting.gaussian import shift_distribution, subsampled_mu
from dpcore.accounting.odds import right_guesses
from dpcore.attacks.known_rest import KnownAllButOneBit
from dpcore.errors import DataError
from dpcore.numbers.fixed_point import ONE
from dpcore.queries.rados import RadosQuery
from dpcore.rados.designs import Design, DpFeatDesign, JointDesign, PlainDesign, SensitiveFeature
from dpcore.rados.signatures import signatures_of, whole
from dpcore.randomness.sources import SeededRandom
from dpcore.records.computation import Computation
from dpcore.records.records import Records
from dpcore.research.theorems import UnrecoverableError, reconstruct_edges

FRACTION_BITS = 16
UNIT = 1 << FRACTION_BITS
# Records, coordinates, rados; the last has more records than coordinates.
CASES = ((20, 24, 300), (30, 32, 1000), (40, 32, 1000))
# The least cosine at which a direction counts as an edge's; exact means exact to the last integer.
SAME_DIRECTION = 0.95

ROWS, COORDINATES, RADOS = 24, 6, 20
SENSITIVE, TARGET = 0, 3
MARGINAL_TRIALS, JOINT_TRIALS = 50, 1000
EPSILONS = (Fraction(1), Fraction(4))
DELTA = Fraction(1, 10**6)
EPSILON_PER_RADO = Fraction(1)


def records(rows: int, d: int, seed: int, bit: int | None = None) -> Records:
    """A sensitive -1/+1 column, real columns, the bias; `bit`, if given: the target's sensitive edge coordinate."""
    generator = np.random.default_rng(seed)
    features = generator.integers(-ONE, ONE + 1, size=(rows, d)).astype(np.int32)
    features[:, SENSITIVE] = np.where(generator.random(rows) < 0.4, ONE, -ONE)
    features[:, -1] = ONE
    labels = generator.choice([-1, 1], size=rows).astype(np.int8)
    if bit is not None:
        features[TARGET, SENSITIVE] = bit * int(labels[TARGET]) * ONE
    return Records(features, labels, np.ones(rows, dtype=np.bool_))


def edges_of(held: Records) -> NDArray[np.int64]:
    whole = np.eye(held.rows, dtype=np.uint8)
    query = RadosQuery(held.rows, PlainDesign())
    return query.prepare(held, FRACTION_BITS).sums_of(np.packbits(whole, axis=1, bitorder="little"))


def release(design: Design, held: Records, rados: int, seed: int) -> NDArray[np.int64]:
    query = RadosQuery(rados, design)
    return query.integers(query.contribution(held, FRACTION_BITS, Computation(SeededRandom(seed))))


@dataclass(frozen=True)
class Recovered:
    """The number of m edges that one run returned: directions by FastICA, exact after it, exact by signatures."""

    directions: int
    exact: int
    known_signatures: int


def recover(m: int, d: int, n: int, seed: int) -> Recovered:
    held = records(m, d, seed)
    truth = edges_of(held)
    selection = whole(signatures_of(PlainDesign(), held, n, SeededRandom(seed)))
    bits = np.unpackbits(selection, axis=1, count=m, bitorder="little").astype(np.bool_)
    rados = bits.astype(np.int64) @ truth
    components, guessed = independent_components(rados, min(m, d), seed)
    cosines = np.abs(_unit(truth) @ _unit(components).T)
    directions = int((cosines.max(axis=1) > SAME_DIRECTION).sum())
    return Recovered(directions, _exact(rados, guessed, truth), _exact(rados, bits, truth))


def independent_components(rados: NDArray[np.int64], m: int, seed: int) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """The independent components of rados: their directions (m, d), and which one is in which rado (n, m).

    pi is the sum of s_i e_i with independent s_i in {0, 1}: independent sources of two values. The analysis leaves the
    sign of a source open. It follows from the mean: a rado's mean is half the sum of the edges, where all s_i are 1/2,
    and the larger of a source's two values is the one that includes the edge.
    """
    analysis = FastICA(m, whiten="unit-variance", random_state=seed, max_iter=500, tol=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        sources = analysis.fit_transform(rados.astype(np.float64))
    at_zero = analysis.transform(np.zeros((1, rados.shape[1])))[0]
    # The empty sum has s = 0, so relative to the mean it is on the side of the smaller values.
    return analysis.mixing_.T, sources * -np.sign(at_zero) > 0


def _unit(rows: NDArray[Any]) -> NDArray[np.float64]:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float64)


def _exact(rados: NDArray[np.int64], selection: NDArray[np.bool_], truth: NDArray[np.int64]) -> int:
    """The number of true edges that Lemma 9 returns exactly with these signatures."""
    try:
        found = reconstruct_edges(rados, selection)
    except (DataError, UnrecoverableError):
        return 0
    return len({tuple(row) for row in found.tolist()} & {tuple(row) for row in truth.tolist()})


@dataclass(frozen=True)
class Guessing:
    """The number of right guesses in `trials` releases; the share allowed, and the share expected by theory."""

    design: str
    trials: int
    right: float
    allowed: float | None
    expected: float | None

    @property
    def accuracy(self) -> float:
        """The share of right guesses."""
        return self.right / self.trials

    @property
    def limits(self) -> tuple[float, float]:
        """Clopper and Pearson's 95 % interval."""
        low = stats.beta.ppf(0.025, self.right, self.trials - self.right + 1) if self.right else 0.0
        high = stats.beta.ppf(0.975, self.right + 1, self.trials - self.right) if self.right < self.trials else 1.0
        return float(low), float(high)

    def cells(self) -> tuple[str, ...]:
        """The cells of the table."""
        low, high = self.limits
        said = ("-" if value is None else f"{value:.3f}" for value in (self.expected, self.allowed))
        won = f"{self.right:g} of {self.trials}"
        return (self.design, won, f"{self.accuracy:.3f} [{low:.3f}, {high:.3f}]", *said)


def marginal() -> Guessing:
    """DP-FEAT with Algorithm 2's truncation: a fresh table each time."""
    design, right = DpFeatDesign((SensitiveFeature(SENSITIVE, "sensitive"),), EPSILON_PER_RADO), 0
    for trial in range(MARGINAL_TRIALS):
        bit = 1 if trial % 2 else -1
        held = records(ROWS, COORDINATES, trial, bit)
        knows = KnownAllButOneBit(edges_of(held), SENSITIVE, TARGET, UNIT)
        right += knows.guess(release(design, held, RADOS, trial)) == bit
    name = f"dp-feat, marginal, eps {float(EPSILON_PER_RADO):g} per rado"
    return Guessing(name, MARGINAL_TRIALS, right, None, None)


def joint(epsilon: Fraction, share_of_noise: Fraction) -> Guessing:
    """`joint` calibrated to epsilon and DELTA, one pair of neighbours, and the noise times `share_of_noise`."""
    sigma = math.ceil(2 * UNIT / subsampled_mu(RADOS, Fraction(1, 2), epsilon, DELTA))
    design = JointDesign("sensitive", (SENSITIVE,), 4, math.floor(sigma * share_of_noise))
    right = 0.0
    for bit in (-1, 1):
        held = records(ROWS, COORDINATES, 1, bit)
        knows = KnownAllButOneBit(edges_of(held), SENSITIVE, TARGET, UNIT)
        rados = release(design, held, JOINT_TRIALS // 2 * RADOS, 10 * EPSILONS.index(epsilon) + bit)
        evidence = knows.evidence(rados, knows.signatures(rados)[0]).reshape(-1, RADOS).sum(axis=1)
        # If the record is in no rado, a coin decides.
        right += float(np.sum(np.sign(evidence) == bit) + np.sum(evidence == 0) / 2)
    exact = shift_distribution(2 * UNIT / design.share_sigma, RADOS, Fraction(1, 2))
    counted = shift_distribution(2 * UNIT / sigma, RADOS, Fraction(1, 2))
    less = "" if share_of_noise == 1 else f", noise x {float(share_of_noise):g} (wrong)"
    return Guessing(
        f"joint, eps {float(epsilon):g} at 1e-6{less}",
        JOINT_TRIALS,
        right,
        right_guesses(0.0, counted.delta(0.0).upper).probability,
        right_guesses(0.0, exact.delta(0.0).upper).probability,
    )


def run(*, everything: bool = False) -> Report:  # noqa: ARG001 - every benchmark takes it; this one has one size
    recovered = {case: [recover(*case, seed) for seed in range(REPEATS)] for case in CASES}
    for (m, _, _), runs in recovered.items():
        require(all(one.known_signatures == m for one in runs), "Lemma 9 did not return every edge exactly")
    guessed = [marginal()]
    guessed += [joint(epsilon, share) for epsilon in EPSILONS for share in (Fraction(1), Fraction(1, 2))]
    measures, rows = [], []
    for (m, d, n), runs in recovered.items():
        counts = {
            "FastICA, directions": [one.directions for one in runs],
            "FastICA, then exact": [one.exact for one in runs],
            "signatures known (Lemma 9), exact": [one.known_signatures for one in runs],
        }
        name = f"m={m}, d={d}, n={n:,}"
        measures += [Measure.of(f"{name}: {what}", "edges", values) for what, values in counts.items()]
        rows.append((name, *(f"{min(values)} to {max(values)} of {m}" for values in counts.values())))
    for one in guessed:
        measures.append(Measure(f"{one.design}: right guesses", "share", one.accuracy, *one.limits, one.trials))
    tables = [
        Table(
            f"Edges returned from plain rados, {REPEATS} runs",
            ("", "FastICA: directions", "FastICA: exact", "signatures known: exact"),
            rows,
        ),
        Table(
            f"The adversary knows all but one bit (m={ROWS}, d={COORDINATES}, n={RADOS})",
            ("", "right", "share [95 %]", "in theory", "allowed"),
            [one.cells() for one in guessed],
        ),
    ]
    stated = (f"{right_guesses(float(each), float(DELTA)).probability:.3f} at {float(each):g}" for each in EPSILONS)
    notes = [
        "FastICA sees only the rados and the number of records. Its two-valued sources are the signatures, up",
        "to order, and with them Lemma 9 gives the edges to the last integer. With more records than coordinates it",
        f"finds some directions (cosine above {SAME_DIRECTION}), and no edge exactly.",
        "'allowed' is (1 + delta(0)) / 2, the tightest point of the calibrated noise's privacy bound. Half the noise",
        f"breaks it: the bound is not loose. The stated epsilon and delta alone allow {', '.join(stated)}.",
    ]
    setting: dict[str, object] = {
        "fraction_bits": FRACTION_BITS,
        "rados": RADOS,
        "delta": float(DELTA),
        "same_direction": SAME_DIRECTION,
    }
    setting["guessing"] = [{"design": one.design, "allowed": one.allowed, "in_theory": one.expected} for one in guessed]
    claim = (__doc__ or "").partition("\n")[0]
    return Report("leaks", claim, setting, measures, [], tables, notes)


def draw_guessing(report: Report, axes: Any) -> None:
    guessing = report.setting["guessing"]
    by_name = {measure.what: measure for measure in report.measures}
    places = np.arange(len(guessing))[::-1]
    for place, one in zip(places, guessing, strict=True):
        found = by_name[f"{one['design']}: right guesses"]
        error = [[found.median - found.minimum], [found.maximum - found.median]]
        axes.errorbar(found.median, place, xerr=error, fmt="o", color="C0", label="right guesses" if place == 0 else "")
        if one["allowed"] is not None:
            axes.plot(one["allowed"], place, "|", color="C3", markersize=18, label="allowed" if place == 0 else "")
    axes.set_yticks(places, [one["design"] for one in guessing])
    axes.axvline(0.5, color="0.7", linewidth=1)
    axes.set_xlabel("share of releases guessed right")
    axes.legend(loc="upper center", bbox_to_anchor=(0.4, -0.12))


def draw(report: Report, figure: Figure) -> None:
    """Edges returned, and guesses of the bit."""
    left, right = figure.subplots(1, 2, width_ratios=(1, 1))
    names = [f"m={m}, d={d}, n={n:,}" for m, d, n in CASES]
    by_name = {measure.what: measure.median for measure in report.measures}
    ways = ("FastICA, directions", "FastICA, then exact", "signatures known (Lemma 9), exact")
    for offset, way in zip((0.27, 0.0, -0.27), ways, strict=True):
        shares = [100 * by_name[f"{name}: {way}"] / case[0] for name, case in zip(names, CASES, strict=True)]
        left.barh(np.arange(len(CASES))[::-1] + offset, shares, height=0.25, label=way)
    left.set_yticks(np.arange(len(CASES))[::-1], names)
    left.set_xlabel("edges returned from plain rados, %")
    left.legend(loc="upper center", bbox_to_anchor=(0.4, -0.12))
    draw_guessing(report, right)
