"""What clipping makes of a model's coefficients: whose they are, and of which regression they are not.

Every table of coefficients has these sentences: of commands, of Python, of reports, of exports and of the console.
"""

from typing import Any, Protocol

from dpcore.records.schema import Schema


class Trained(Protocol):
    """What the sentences depend on (learner.model.Model)."""

    @property
    def estimator(self) -> str:
        """The estimator's name."""
        ...

    @property
    def schema(self) -> Schema:
        """How columns become coordinates."""
        ...

    @property
    def feature_map(self) -> Any:
        """None, or what rows are mapped by."""
        ...

    @property
    def sampling(self) -> Any:
        """The errors for the choice of rows, if weights are those of a regression without clipping."""
        ...


_CLIPPED = (
    "Gradients were clipped: these are no log odds. Intervals are of the weights that this loss with clipped gradients "
    "has over very many rows. Coefficients of a logistic regression on the pooled rows are "
    "usually nearer to 0, on public tables by a factor of 1.3 to 2.2, and intervals need not contain them. Train "
    "newton with a clip of at least 1 for odds ratios."
)
_HARDLY_CLIPPED = (
    "Few gradients were clipped: these are the log odds of a logistic regression on the pooled rows, and intervals "
    "count what clipping moves them by."
)
_CLIPPED_OF_CLASSES = (
    "Gradients were clipped or classes weighted, or there are too many weights: these are no logarithms of relative "
    "risk ratios, and no errors are stated. Train newton with a clip of at least 1.5 for relative risk ratios with "
    "intervals."
)
_CLIPPED_OF_NUMBERS = (
    "Gradients were clipped: rows far from the others, and those with a label far from its prediction, pull less than "
    "in least squares on the pooled rows. Intervals allow for that as far as tails are of usual length; with longer "
    "ones, such as wrong zeros, the coefficients of least squares may be outside. linear clips no residual."
)
_CLIPPED_OF_COUNTS = (
    "Gradients were clipped: rows whose count is far from what is predicted pull less than in a Poisson regression on "
    "the pooled rows. Intervals allow for that as far as tails are of usual length."
)
_WEIGHTED_OF_TIMES = (
    "Rows far out count less: where a column's effect on the logarithm of the hazard is no line, its ratio is that of "
    "the bulk of the rows, and its interval is wider for it."
)


def what_clipping_does(model: Trained) -> tuple[str, ...]:
    """Sentences about the coefficients of a model; none if its training clips no gradient, or if it has curves."""
    coding = model.schema.label.coding
    if model.feature_map is not None or model.estimator not in ("newton", "additive", "hazards"):
        return ()
    if coding.classes:
        return () if model.sampling is not None else (_CLIPPED_OF_CLASSES,)
    if coding.intervals:
        return (_WEIGHTED_OF_TIMES,)
    if coding.is_measured:
        return (_CLIPPED_OF_COUNTS if coding.kind == "count" else _CLIPPED_OF_NUMBERS,)
    return (_CLIPPED if model.sampling is None else _HARDLY_CLIPPED,)
