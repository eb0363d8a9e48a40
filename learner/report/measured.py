"""How good a model is: what `rado learner evaluate` measured on the parties' rows, or the learner's own labelled rows.

Evaluations of both sorts have the same figures and intervals (dpcore.evaluation.evaluation).
"""

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dpcore.errors import ConfigurationError, DataError, RadofedError
from dpcore.estimators.oracle import WHOLE
from dpcore.evaluation.evaluation import evaluate
from dpcore.predicates.evaluation import sums
from dpcore.predicates.expressions import Predicate
from dpcore.queries.statement import PrivacyStatement
from dpcore.records.changed_cells import Change, changes, summed, why_unusable
from dpcore.records.feature_map import FeatureMap
from dpcore.records.records import Records
from dpcore.records.schema import Schema
from dpcore.statistics.estimates import Estimates
from learner.model import Model, warn_of
from radofed.common.files.reading import FileKind, read_json, with_remedy
from radofed.common.tables.tables import as_source, open_table, stored_blocks

OWN_BINS = 10
_REMEDY = "give the file that `rado learner evaluate MODEL --format json > FILE` wrote"
_EVALUATION = FileKind(with_remedy(_REMEDY), limit_bytes=4 << 20)
_MOST_POINTS = 256

Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Number = Annotated[float, Field(allow_inf_nan=False)]


class _Figures(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")


class Measure(_Figures):
    """A proportion with its intervals: on the rows, and for new rows if that can be stated."""

    estimate: Share
    on_rows: Annotated[list[Share], Field(min_length=2, max_length=2)]
    on_distribution: Annotated[list[Share], Field(min_length=2, max_length=2)] | None

    @property
    def interval(self) -> list[float]:
        """That of the strongest claim: for new rows, else on these rows."""
        return self.on_distribution or self.on_rows


class CalibrationPart(_Figures):
    """Rows whose predicted probability is within a range, and the share of them that are positive."""

    predicted: Annotated[list[Share], Field(min_length=2, max_length=2)]
    rows: Number
    observed: Measure

    @property
    def is_off(self) -> bool:
        """Whether the interval is outside of the predicted range."""
        low, high = self.observed.interval
        return low > self.predicted[1] or high < self.predicted[0]


class RocPoint(_Figures):
    """Rates of the classifier with another threshold."""

    threshold: Number
    false_positive_rate: Measure
    true_positive_rate: Measure


class Figures(_Figures):
    """The figures of an evaluation, as `dpcore.evaluation.evaluation.Evaluation.to_dict` names them."""

    rows: Annotated[int, Field(ge=1)]
    unseen: bool
    confidence: Share
    usable: Number
    error: Measure
    true_positive_rate: Measure
    false_positive_rate: Measure
    precision: Measure
    balanced_accuracy: Measure
    auc: Measure
    calibration: Annotated[list[CalibrationPart], Field(max_length=_MOST_POINTS)]
    roc: Annotated[list[RocPoint], Field(max_length=_MOST_POINTS)]


class _File(Figures):
    model_digest: str = ""
    privacy: dict[str, Any]


class Measured(_Figures):
    """An evaluation. own: whether on the learner's own rows. privacy: what asking cost; None for own rows.

    changes: what the schema's policies changed in own rows, what lost most first.
    """

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    figures: Figures
    own: bool
    privacy: PrivacyStatement | None
    changes: tuple[Change, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """All figures by name, in JSON types."""
        privacy = None if self.privacy is None else self.privacy.to_dict()
        return {
            **self.figures.model_dump(mode="json"),
            "own_rows": self.own,
            "privacy": privacy,
            "changes": [change.to_dict() for change in self.changes],
        }


def read_evaluation(path: Path, model: Model) -> Measured:
    """The evaluation of this model that a file has. Raises ConfigurationError if it is no such file."""
    content = read_json(path, _EVALUATION)
    data = content.get("data")
    if content.get("status") != "ok" or not isinstance(data, dict):
        raise ConfigurationError(f"{path}: not an evaluation; {_REMEDY}")
    try:
        # No field that is not needed is kept.
        found = _File.model_validate(data)
        privacy = PrivacyStatement.from_dict(found.privacy)
    except (ValidationError, RadofedError) as error:
        where = ".".join(map(str, error.errors()[0]["loc"])) if isinstance(error, ValidationError) else "privacy"
        raise ConfigurationError(f"{path}: not an evaluation: {where} is missing or out of range; {_REMEDY}") from error
    if not found.model_digest:
        raise ConfigurationError(f"{path}: does not say which model was measured; evaluate it again")
    if found.model_digest != model.digest.hex():
        raise ConfigurationError(f"{path}: another model was measured; give the evaluation of this one")
    return Measured(figures=Figures.model_validate(found.model_dump()), own=False, privacy=privacy)


def measure(model: Model, table: Any) -> Measured:
    """The evaluation of a model on labelled rows that are the learner's own. Nothing is asked.

    table: a path, an Arrow table or a data frame. Raises DataError as radofed.common.tables.tables does, and if no row
    is usable. Warns if some are not, or many cells were changed.
    """
    rows = OwnRows(model.schema, table)
    options: dict[str, Any] = {"bins": OWN_BINS, "edges_part": Fraction(0), "feature_map": model.feature_map}
    found = evaluate(model.theta, rows, unseen=True, **options)
    return Measured(figures=Figures.model_validate(found.to_dict()), own=True, privacy=None, changes=rows.changes)


class OwnRows:
    """Labelled rows that the learner may see, as a dpcore.estimators.oracle.StatisticOracle without noise."""

    epsilon = Fraction(1 << 62)
    """No noise is added, so any value is valid."""

    delta = Fraction(0)

    def __init__(self, schema: Schema, table: Any) -> None:
        self.schema = schema
        source = open_table(as_source(table))
        blocks = list(stored_blocks(source, schema))
        usable = np.concatenate([block.usable for block in blocks])
        tallies, rows, count = summed(block.tallies for block in blocks), len(usable), int(usable.sum())
        self.changes = changes(schema, tallies, rows)
        if not count:
            why = why_unusable(self.changes, rows=rows, usable=count)
            raise DataError(f"{why}; correct the table", file=source.path)
        warn_of(self.changes, rows=rows, usable=count, then="figures are of the usable rows", stacklevel=4)
        self._records = Records(
            np.concatenate([block.features for block in blocks]),
            np.concatenate([block.labels for block in blocks]),
            usable,
        )

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self._records.rows

    def statistic(
        self,
        predicates: Sequence[Predicate],
        *,
        part: Fraction = WHOLE,  # noqa: ARG002  (nothing is spent)
        tolerance: float | None = None,  # noqa: ARG002  (there is no other answer)
        confidence: float = 0.95,
        noise_rate: float = 0.0,  # noqa: ARG002  (labels are taken as they are)
        feature_map: FeatureMap | None = None,
    ) -> Estimates:
        """Exact means over the rows."""
        records = self._records if feature_map is None else self._records.mapped(feature_map)
        means = sums(predicates, self.schema, records, 0) / self.rows
        return Estimates(means, self.rows, confidence, 0.0, 0.0, 0.0, 0.0)
