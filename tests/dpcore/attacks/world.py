"""Tables and releases that attacks are tried on."""

from fractions import Fraction

import numpy as np

from dpcore.attacks.outcome import Promise
from dpcore.attacks.rehearsal import calibrated
from dpcore.attacks.release import ModelRelease, MomentsRelease, RadosRelease, Table
from dpcore.numbers.fixed_point import ONE
from dpcore.queries.moments import MomentsQuery, edge_multiplier
from dpcore.queries.rados import RadosQuery
from dpcore.randomness.noise import SMALLEST_SHARE_SIGMA
from dpcore.records.clipping import Clip
from dpcore.records.features import BooleanFeature, Label, RealFeature
from dpcore.records.records import Records
from dpcore.records.schema import Schema

# A large delta allows little noise, so that a tenth of it shows in few releases.
EPSILON, DELTA = Fraction(1), Fraction(1, 1000)
PROMISE = Promise(EPSILON, DELTA)


def schema(d: int) -> Schema:
    """A boolean, d - 2 numbers and the bias."""
    numbers = (RealFeature(f"x{at}", f"x{at}", -1.0, 1.0) for at in range(d - 2))
    return Schema(
        "attacked", Label("y", ("1",), ("0",)), (BooleanFeature("smoker", "smoker", ("1",), ("0",)), *numbers)
    )


def records(rows: int, d: int, seed: int = 0, extreme: bool = False) -> Records:
    """Rows over that schema. extreme: all cells at an end of their range, so that replacing a row shifts most."""
    generator = np.random.default_rng(seed)
    features = generator.integers(-ONE, ONE + 1, size=(rows, d)).astype(np.int32)
    features[:, 0] = np.where(generator.random(rows) < 0.4, ONE, -ONE)
    if extreme:
        features[:] = np.where(features > 0, ONE, -ONE)
    features[:, -1] = ONE
    return Records(features, generator.choice([-1, 1], size=rows).astype(np.int8), np.ones(rows, dtype=np.bool_))


def table(rows: int, d: int, seed: int = 0, extreme: bool = False) -> Table:
    return Table.of(records(rows, d, seed, extreme), 0, "smoker")


def rados(design, n: int, over: Table, promise=None, noise: Fraction | None = None, cell=None) -> RadosRelease:
    """Rados; with a promise, noise for it times `noise`."""
    kind = RadosQuery(n, design)
    if promise or cell:
        kind = calibrated(kind, over, 16, EPSILON, DELTA)
        if noise is not None:
            kind = with_share(kind, noise)
    given = {"promise": promise} if promise else {}
    if promise or cell:
        given["cell_promise"] = cell or promise
    return RadosRelease(design.name, 16, **given, kind=kind)


def with_share(kind, share: Fraction):
    """The kind with this share of its noise."""
    design = getattr(kind, "design", kind)
    sigma = getattr(design, "edge_sigma", 0) or design.share_sigma
    return kind.with_noise(max(SMALLEST_SHARE_SIGMA, int(sigma * share)))


def moments(over: Table, noise: Fraction | None = None, *, as_model: bool = False, norm=Fraction(3, 2)):
    """Moments with noise for the promise, times `noise`."""
    clip = Clip(norm, bias=True)
    kind = calibrated(MomentsQuery(clip, edge_multiplier(norm, 10), SMALLEST_SHARE_SIGMA), over, 10, EPSILON, DELTA)
    if noise is not None:
        kind = with_share(kind, noise)
    return (ModelRelease if as_model else MomentsRelease)("moments", 10, PROMISE, PROMISE, kind=kind)
