"""The options of an evaluation, declared once for Python and for `rado learner evaluate`."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated

from dpcore.declared import Declared, Option
from dpcore.errors import ConfigurationError

FEWEST_FOUND, LEAST_BINS, EVEN_BINS, MOST_BINS = 4, 6, 20, 256
USUAL_BINS = 8


@dataclass(frozen=True, kw_only=True)
class EvaluationOptions(Declared):
    """How a model is evaluated. Raises ConfigurationError. scale: of a score, 1 for a logistic regression."""

    confidence: Annotated[float, Option("Simultaneous confidence of all intervals.", above=0, below=1)] = 0.95
    bins: Annotated[
        int | None,
        Option(
            "Number of bins of scores, for calibration and ROC.", default=f"{USUAL_BINS}, or {EVEN_BINS} at even steps"
        ),
    ] = None
    scale: Annotated[float, Option("Scale of the scores, for scores that are not log odds.", above=0)] = 1.0
    edges_part: Annotated[
        Fraction,
        Option(
            "Part of epsilon that finds where scores are. 0: bins at even steps of probability, and one release.",
            at_least=0,
            below=1,
        ),
    ] = Fraction(1, 8)

    def __post_init__(self) -> None:
        super().__post_init__()
        bins = self.count
        if not math.isfinite(self.scale):
            raise ConfigurationError(f"scale is {self.scale}: give a finite score above 0")
        if self.edges_part and not FEWEST_FOUND <= bins <= MOST_BINS:
            raise ConfigurationError(f"bins is {bins}: give a number from {FEWEST_FOUND} to {MOST_BINS}")
        if not self.edges_part and (bins % 2 or not LEAST_BINS <= bins <= MOST_BINS):
            raise ConfigurationError(
                f"bins is {bins}: give an even number from {LEAST_BINS} to {MOST_BINS}, so that 0 is an edge"
            )

    @property
    def count(self) -> int:
        """The number of bins."""
        if self.bins is None:
            return USUAL_BINS if self.edges_part else EVEN_BINS
        return self.bins
