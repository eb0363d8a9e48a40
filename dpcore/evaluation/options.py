"""The options of an evaluation, declared once for Python and for `rado learner evaluate`."""

import math
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated

from dpcore.declared import Declared, Option
from dpcore.errors import ConfigurationError

FALSE_NEGATIVE, FALSE_POSITIVE = "false-negative", "false-positive"
_COST = re.compile(r"([^=:]+)=([0-9]{1,9}(?:\.[0-9]{1,9})?)")
_COSTS = re.compile(r"(false-negative|false-positive)=([0-9]{1,9}(?:\.[0-9]{1,9})?)")
FEWEST_FOUND, LEAST_BINS, EVEN_BINS, MOST_BINS = 4, 6, 20, 256
USUAL_BINS = 8


def written_costs(text: str) -> dict[str, Fraction]:
    """What is named in "flu=10:flu>cold=2", with its cost. Raises ConfigurationError."""
    found: dict[str, Fraction] = {}
    # Python callers may give anything.
    for part in text.split(":") if isinstance(text, str) else ("",):
        match = _COST.fullmatch(part.strip())
        if match is None or match[1].strip() in found:
            raise ConfigurationError(
                f"the cost is {text!r}: write CLASS=5, or CLASS>CALLED=5, joined by :, each once, with numbers in "
                "plain digits, at most 9 before and 9 after the point"
            )
        found[match[1].strip()] = Fraction(match[2])
    return found


def _check_written(text: str) -> None:
    """Raise ConfigurationError for what is no cost, whatever the label."""
    if not isinstance(text, str) or "false-" in text or "=" not in text:
        Costs.parse(text)
    else:
        written_costs(text)


@dataclass(frozen=True)
class Costs:
    """What wrong decisions cost, in any unit. Raises ConfigurationError unless both are above 0."""

    false_negative: Fraction
    """Of a positive row that is called negative."""
    false_positive: Fraction
    """Of a negative row that is called positive."""

    def __post_init__(self) -> None:
        if min(self.false_negative, self.false_positive) <= 0:
            raise ConfigurationError("a cost is 0: give both costs above 0, or every row is called the same")

    @classmethod
    def parse(cls, text: str) -> "Costs":
        """From "false-negative=5:false-positive=1"; a cost that is left out is 1. Raises ConfigurationError."""
        found: dict[str, Fraction] = {}
        # Python callers may give anything.
        for part in text.split(":") if isinstance(text, str) else ("",):
            match = _COSTS.fullmatch(part.strip())
            if match is None or match[1] in found:
                raise ConfigurationError(
                    f"the cost is {text!r}: write {FALSE_NEGATIVE}=5:{FALSE_POSITIVE}=1, each once, with numbers above "
                    "0 in plain digits, at most 9 before and 9 after the point"
                )
            found[match[1]] = Fraction(match[2])
        return cls(found.get(FALSE_NEGATIVE, Fraction(1)), found.get(FALSE_POSITIVE, Fraction(1)))

    @property
    def words(self) -> str:
        """For people."""
        missed, wrong = float(self.false_negative), float(self.false_positive)
        return f"{missed:g} for a positive row that is missed and {wrong:g} for a negative row called positive"

    def to_dict(self) -> dict[str, float]:
        """For JSON."""
        return {"false_negative": float(self.false_negative), "false_positive": float(self.false_positive)}


@dataclass(frozen=True, kw_only=True)
class EvaluationOptions(Declared):
    """How a model is evaluated. Raises ConfigurationError. scale: of a score, 1 for a logistic regression."""

    confidence: Annotated[float, Option("Simultaneous confidence of all intervals.", above=0, below=1)] = 0.95
    bins: Annotated[
        int | None,
        Option(
            "Number of bins of scores, for calibration, ROC, and observed beside predicted values.",
            default=f"{USUAL_BINS}, or {EVEN_BINS} at even steps",
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

    cost: Annotated[
        str | None,
        Option(
            "What mistakes cost, such as false-negative=5:false-positive=1, or of several classes flu=10:flu>cold=2. "
            "Prints the threshold, or the shifts of scores, of the least cost."
        ),
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        bins = self.count
        if self.cost is not None:
            _check_written(self.cost)
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
