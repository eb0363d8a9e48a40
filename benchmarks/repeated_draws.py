"""Claim: rounded dp-feat and fixed support over a table with noise take at most twice the time without.

One party's contribution of 1,000 rados, before its encryption, on all cores, with one real-valued sensitive feature
rounded and not (then its values are -1 and +1), and over a table with noise and without. Rounding and noise are derived
again for each query, because a party keeps no second copy of its rows. Processor time is also given: it depends less on
what else the machine does.
"""

import time
from collections.abc import Callable
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import NDArray

from benchmarks.measuring import MEASURE_HEADER, Measure, Report, Table, Target, draw_seconds, ratio, take_turns
from dpcore.numbers.fixed_point import ONE
from dpcore.queries.rados import RadosQuery
from dpcore.rados.designs import DpFeatDesign, FixedSupportDesign, SensitiveFeature
from dpcore.randomness.sources import SeededRandom
from dpcore.records.clipping import Clip
from dpcore.records.computation import Computation, PartySecret
from dpcore.records.records import Records

ROWS, COORDINATES, RADOS = 1_000_000, 18, 1_000
FRACTION_BITS, EDGE_SIGMA = 16, 40_000
SECRET = PartySecret(bytes(32), bytes(32))
MOST_RATIO = 2
WITHOUT, PROCESSOR = "the same rados without: ", ", processor time"


def records() -> Records:
    """Uniform features with a bias, the first -1 or +1, and fair labels."""
    random = np.random.default_rng(1)
    features = random.integers(-ONE, ONE, size=(ROWS, COORDINATES), endpoint=True).astype(np.int32)
    features[:, 0] = np.where(features[:, 0] > 0, ONE, -ONE)
    features[:, -1] = ONE
    return Records(features, random.choice([-1, 1], size=ROWS).astype(np.int8), np.ones(ROWS, dtype=np.bool_))


def contribution(held: Records, design: DpFeatDesign | FixedSupportDesign) -> NDArray[np.int64]:
    """What the party would encrypt."""
    return RadosQuery(RADOS, design).contribution(held, FRACTION_BITS, Computation(SeededRandom(1), SECRET))


def run(*, everything: bool = False) -> Report:  # noqa: ARG001 - every benchmark takes it; this one has one size
    held, clip = records(), Clip(Fraction(2), bias=True)
    pairs: dict[str, tuple[DpFeatDesign, DpFeatDesign] | tuple[FixedSupportDesign, FixedSupportDesign]] = {
        "dp-feat, rounded": (
            DpFeatDesign((SensitiveFeature(0, "x0", rounded=True),)),
            DpFeatDesign((SensitiveFeature(0, "x0", rounded=False),)),
        ),
        "fixed-support, over a table with noise": (
            FixedSupportDesign(Fraction(1, 2), clip, EDGE_SIGMA),
            FixedSupportDesign(Fraction(1, 2), clip, 0),
        ),
    }
    ways: dict[str, Callable[[], NDArray[np.int64]]] = {}
    for name, (drawn, plain) in pairs.items():
        ways[name], ways[WITHOUT + name] = (partial(contribution, held, design) for design in (drawn, plain))
    processor: dict[str, list[float]] = {way: [] for way in ways}
    seconds = take_turns({way: partial(_processor_timed, work, processor[way]) for way, work in ways.items()})
    # The first value is that of the warm-up call.
    processor = {f"{way}{PROCESSOR}": values[1:] for way, values in processor.items()}
    measures = [Measure.of(way, "s", values) for way, values in {**seconds, **processor}.items()]
    ratios = [ratio(name, seconds[name], seconds[WITHOUT + name]) for name in pairs]
    busy = [
        ratio(name + PROCESSOR, processor[name + PROCESSOR], processor[WITHOUT + name + PROCESSOR]) for name in pairs
    ]
    setting = {"rows": ROWS, "coordinates": COORDINATES, "rados": RADOS, "edge_sigma_units": EDGE_SIGMA}
    return Report(
        "repeated_draws",
        (__doc__ or "").partition("\n")[0],
        setting,
        measures,
        ratios + busy,
        [
            Table(f"m={ROWS:,} d={COORDINATES} n={RADOS:,}", MEASURE_HEADER, [m.cells() for m in measures]),
            Table("Beside the same without", MEASURE_HEADER, [r.cells() for r in ratios + busy]),
        ],
        targets=[Target(found.what, "times", MOST_RATIO, found.median, at_least=False) for found in ratios],
    )


def _processor_timed(work: Callable[[], object], seconds: list[float]) -> None:
    """Do the work; its processor time in all threads is added to the list."""
    start = time.process_time()
    work()
    seconds.append(time.process_time() - start)


draw = draw_seconds
