"""What a plan has beside what a request has: declared once for `rado plan`, the console and Python.

Imports nothing that computes, so that help is fast.
"""

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated

from dpcore.declared import Option
from wire.request_fields import (
    ADAPTIVE,
    CLASS_WEIGHT,
    CONFIDENCE,
    DELTA_OR_ZERO,
    ESTIMATOR_OPTION,
    KEY_BITS,
    KEY_SIZE,
    LABEL,
    LOCAL,
    MAP_FILE,
    MAY_VANISH,
    NOISE_RATE,
    ROUNDS,
    SPLIT,
    USUAL_DELTA,
    ReleaseFields,
    Source,
    Split,
    UnitFields,
)


@dataclass(frozen=True, kw_only=True)
class DesignFields(ReleaseFields, UnitFields):
    """What the plan of a design has, as options and as a request."""

    source: Annotated[Source, Option("With --joint: the column's type, boolean, numeric or category.")] = "boolean"
    share_sd: Annotated[
        int | None,
        Option(
            "Instead of --epsilon: standard deviation of each party's noise (of a noised table, the whole noise), in "
            "units of 2^-fraction_bits.",
            at_least=1,
        ),
    ] = None
    delta: Annotated[Fraction, DELTA_OR_ZERO] = USUAL_DELTA
    honest: Annotated[
        int | None,
        Option(
            "h, the parties whose noise counts under collusion.",
            default="those of the smallest cohort of a query that are not assumed to collude",
        ),
    ] = None
    fraction_bits: Annotated[
        int | None, Option("Binary digits after the point, in a coordinate.", default="those of a learner's query")
    ] = None
    split: Annotated[Split, SPLIT] = "local"
    coordinates: Annotated[
        int | None,
        Option(
            "Coordinates of a row, for noise, bytes and seconds.", default="leave bytes and seconds out", at_least=1
        ),
    ] = None
    may_vanish: Annotated[int | None, MAY_VANISH] = None
    key_bits: Annotated[int, KEY_SIZE] = KEY_BITS


@dataclass(frozen=True, kw_only=True)
class PlanOptions(DesignFields):
    """The options of `rado plan`."""

    estimator: Annotated[
        str | None, Option("Plan what this estimator asks, instead of a design: a name of `rado learner train`.")
    ] = None
    option: Annotated[tuple[str, ...], ESTIMATOR_OPTION] = ()
    rounds: Annotated[int | None, ROUNDS] = None
    class_weight: Annotated[str | None, CLASS_WEIGHT] = None
    statistic: Annotated[
        tuple[str, ...], Option("Plan a statistic, a predicate as of `rado learner statistic`; several make one batch.")
    ] = ()
    rows: Annotated[
        int | None, Option("Rows, or with --unit person persons, of all parties, split equally over --parties.")
    ] = None
    parties: Annotated[int | None, Option("With --rows: number of parties; 1 is a pool, for accounting only.")] = None
    party_rows: Annotated[str | None, Option("Instead of --rows: each party's rows, or persons, M1,M2,...")] = None
    schema: Annotated[
        Path | None, Option("The schema that the parties share: it says coordinates, clipping norm and names.")
    ] = None
    label: Annotated[str | None, LABEL] = None
    worth: Annotated[
        float | None,
        Option(
            "Instead of --epsilon: find the one, up to 10, below which no released number is as exact as one without "
            "noise over this many rows; for rados, over this many rados. More is needed where values vary less than "
            "they could."
        ),
    ] = None
    map_file: Annotated[Path | None, MAP_FILE] = None
    no_bias: Annotated[bool, Option("Records have no constant coordinate.")] = False
    tolerance: Annotated[
        float | None,
        Option(
            "With --statistic: the largest tolerance allowed. Without --epsilon, the smallest one is found.",
            above=0,
            below=1,
        ),
    ] = None
    confidence: Annotated[float, CONFIDENCE] = 0.95
    noise_rate: Annotated[float, NOISE_RATE] = 0.0
    adaptive: Annotated[int | None, ADAPTIVE] = None
    local: Annotated[bool, LOCAL] = False
    picture: Annotated[
        Path | None, Option("Draw epsilon against n, and error against epsilon, into this new SVG file.")
    ] = None
