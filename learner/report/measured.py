"""How good a model is: what `rado learner evaluate` measured on the parties' rows, or the learner's own labelled rows.

Evaluations of both sorts have the same figures and intervals (dpcore.evaluation.evaluation).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from dpcore.errors import ConfigurationError, DataError, RadofedError
from dpcore.estimators.oracle import WHOLE
from dpcore.evaluation.class_evaluation import ClassEvaluation
from dpcore.evaluation.evaluation import CalibrationBin, Evaluation
from dpcore.evaluation.intervals import Interval, Proportion
from dpcore.evaluation.options import MOST_BINS, EvaluationOptions
from dpcore.evaluation.scores import RocPoint
from dpcore.evaluation.thresholds import ThresholdPoint
from dpcore.predicates.evaluation import sums
from dpcore.predicates.expressions import Predicate
from dpcore.queries.statement import PrivacyStatement
from dpcore.records.encoding import Change, changes, summed, why_unusable
from dpcore.records.feature_map import FeatureMap
from dpcore.records.features import Classes, Label
from dpcore.records.held_back import HeldBack, Part
from dpcore.records.records import Records
from dpcore.records.schema import Schema
from dpcore.statistics.accuracy import Estimates
from learner.model import Model, warn_of
from radobase.reading import FileKind, read_json, with_remedy
from radobase.tables.tables import as_source, open_table, stored_blocks

OWN_BINS = 10
_REMEDY = "give the file that `rado learner evaluate MODEL --format json > FILE` wrote"
_EVALUATION = FileKind(with_remedy(_REMEDY), limit_bytes=4 << 20)
_FORMAT = 1
"""The version of the commands' JSON that is read (radofed.cli.output)."""
_MOST_POINTS = MOST_BINS

Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Size = Annotated[float, Field(ge=0, allow_inf_nan=False)]


def _ordered(ends: list[float]) -> list[float]:
    if ends[0] > ends[1]:
        raise ValueError("the lower end is above the upper one")
    return ends


Ends = Annotated[list[Share], Field(min_length=2, max_length=2), AfterValidator(_ordered)]


class _Read(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")


class _Proportion(_Read):
    estimate: Share
    on_rows: Ends
    on_distribution: Ends | None

    def read(self) -> Proportion:
        new = None if self.on_distribution is None else Interval(*self.on_distribution)
        return Proportion(self.estimate, Interval(*self.on_rows), new)


_UNKNOWN = _Proportion(estimate=0.5, on_rows=[0.0, 1.0], on_distribution=None)
"""What a file of an earlier version does not say."""


class _CalibrationBin(_Read):
    predicted: Ends
    rows: Number
    observed: _Proportion


class _RocPoint(_Read):
    threshold: Number
    false_positive_rate: _Proportion
    true_positive_rate: _Proportion


class _ThresholdPoint(_Read):
    threshold: Number
    recall: _Proportion
    precision: _Proportion
    f1: _Proportion

    def read(self) -> ThresholdPoint:
        return ThresholdPoint(self.threshold, self.recall.read(), self.precision.read(), self.f1.read())


class _Part(_Read):
    share: Annotated[str, Field(pattern=r"^[0-9]{1,19}/[1-9][0-9]{0,18}$")]
    part: str

    def read(self) -> HeldBack:
        return HeldBack(Fraction(self.share), Part(self.part))


_Confidence = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]
_Pair = Annotated[list[Number], Field(min_length=2, max_length=2)]


class _Asked(_Read):
    """Which model was measured, and what asking cost."""

    model_digest: str = ""
    privacy: dict[str, Any]


class _File(_Asked):
    """`Evaluation.to_dict`, of a model with one score."""

    rows: Annotated[int, Field(ge=1)]
    part: _Part | None
    unseen: bool
    edges_found: bool | None = None
    confidence: _Confidence
    usable: Size
    usable_half_width: Size
    cell_half_width: Size
    confusion: Annotated[list[_Pair], Field(min_length=2, max_length=2)]
    error: _Proportion
    true_positive_rate: _Proportion
    false_positive_rate: _Proportion
    precision: _Proportion
    balanced_accuracy: _Proportion
    calibration: Annotated[list[_CalibrationBin], Field(min_length=2, max_length=_MOST_POINTS)]
    roc: Annotated[list[_RocPoint], Field(min_length=1, max_length=_MOST_POINTS)]
    positive_share: _Proportion = _UNKNOWN
    f1: _Proportion = _UNKNOWN
    thresholds: Annotated[list[_ThresholdPoint], Field(max_length=_MOST_POINTS)] = []
    auc: _Proportion
    auc_half_width: Annotated[Size, Field(le=0.5)] | None = None
    largest_bin: Share | None = None
    rounding: Size
    deviation: Size

    def evaluation(self, _model: Model) -> Evaluation:
        """The evaluation. Raises ValueError, or a RadofedError, if fields contradict one another."""
        if self.usable > self.rows:
            raise ValueError("more usable rows than rows")
        if len(self.roc) != len(self.calibration) - 1:
            raise ValueError("points of the ROC curve are not the edges of the bins")
        thresholds, bins = [point.threshold for point in self.roc], [each.predicted for each in self.calibration]
        if thresholds != sorted(set(thresholds), reverse=True) or bins != sorted(bins):
            raise ValueError("thresholds or bins are not in order")
        if (self.error.on_distribution is not None) != self.unseen:
            raise ValueError("intervals for new rows, and a model that may have seen the rows")
        auc, sizes = self.auc.read(), [max(each.rows, 0.0) for each in self.calibration]
        # The noise is in the interval on the rows.
        noise = max(auc.estimate - auc.on_rows.lower, auc.on_rows.upper - auc.estimate, 0.0)
        return Evaluation(
            rows=self.rows,
            confidence=self.confidence,
            usable=self.usable,
            usable_half_width=self.usable_half_width,
            confusion=np.array(self.confusion),
            cell_half_width=self.cell_half_width,
            error=self.error.read(),
            true_positive_rate=self.true_positive_rate.read(),
            false_positive_rate=self.false_positive_rate.read(),
            precision=self.precision.read(),
            balanced_accuracy=self.balanced_accuracy.read(),
            calibration=tuple(
                CalibrationBin(Interval(*each.predicted), each.rows, each.observed.read()) for each in self.calibration
            ),
            roc=tuple(
                RocPoint(each.threshold, each.false_positive_rate.read(), each.true_positive_rate.read())
                for each in self.roc
            ),
            positive_share=self.positive_share.read(),
            f1=self.f1.read(),
            points=tuple(point.read() for point in self.thresholds),
            auc=auc,
            auc_half_width=min(noise, 0.5) if self.auc_half_width is None else self.auc_half_width,
            largest_bin=max(sizes) / (sum(sizes) or 1.0) if self.largest_bin is None else self.largest_bin,
            edges_found=self.edges_found,
            rounding=self.rounding,
            deviation=self.deviation,
            part=None if self.part is None else self.part.read(),
            unseen=self.unseen,
        )


class _OfClass(_Read):
    recall: _Proportion
    precision: _Proportion


class _ClassFile(_Asked):
    """`ClassEvaluation.to_dict`."""

    rows: Annotated[int, Field(ge=1)]
    part: _Part | None
    unseen: bool
    confidence: _Confidence
    cell_half_width: Size
    deviation: Size
    error: _Proportion
    confusion: dict[str, dict[str, Number]]
    classes: dict[str, _OfClass]

    def evaluation(self, model: Model) -> ClassEvaluation:
        """The evaluation. Raises ValueError if fields contradict one another, or the model."""
        names = model.scoring.names
        listed = [set(self.classes), set(self.confusion), *map(set, self.confusion.values())]
        if any(each != set(names) for each in listed):
            raise ValueError("its classes are not those of the model")
        if (self.error.on_distribution is not None) != self.unseen:
            raise ValueError("intervals for new rows, and a model that may have seen the rows")
        return ClassEvaluation(
            classes=names,
            rows=self.rows,
            confidence=self.confidence,
            confusion=np.array([[self.confusion[name][other] for other in names] for name in names]),
            cell_half_width=self.cell_half_width,
            error=self.error.read(),
            recalls=tuple(self.classes[name].recall.read() for name in names),
            precisions=tuple(self.classes[name].precision.read() for name in names),
            deviation=self.deviation,
            part=None if self.part is None else self.part.read(),
            unseen=self.unseen,
        )


_FILES: Mapping[str, type[_File | _ClassFile]] = {Label.type: _File, Classes.type: _ClassFile}
"""What a file has, by the type of the model's label."""


@dataclass(frozen=True, eq=False)
class Measured:
    """An evaluation."""

    figures: Evaluation | ClassEvaluation
    own: bool
    """Whether on the learner's own rows."""
    privacy: PrivacyStatement | None
    """What asking cost; None for own rows."""
    changes: tuple[Change, ...] = ()
    """What the schema's policies changed in own rows, what lost most first."""

    def to_dict(self) -> dict[str, Any]:
        """All figures by name, in JSON types."""
        privacy = None if self.privacy is None else self.privacy.to_dict()
        return {
            **self.figures.to_dict(),
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
    if content.get("schema_version") != _FORMAT:
        raise ConfigurationError(
            f"{path}: its schema_version is not {_FORMAT}, which this version of radofed reads; evaluate with this "
            f"version, or {_REMEDY}"
        )
    where = "privacy"
    try:
        # No field that is not needed is kept.
        found = _FILES[model.schema.label.type].model_validate(data)
        privacy = PrivacyStatement.from_dict(found.privacy)
        where = "a field"
        figures = found.evaluation(model)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        raise ConfigurationError(f"{path}: not an evaluation: {where} is missing or out of range; {_REMEDY}") from error
    except RadofedError as error:
        raise ConfigurationError(f"{path}: not an evaluation: {where} is missing or out of range; {_REMEDY}") from error
    except ValueError as error:
        raise ConfigurationError(f"{path}: not an evaluation: {error}; {_REMEDY}") from error
    if not found.model_digest:
        raise ConfigurationError(f"{path}: does not say which model was measured; evaluate it again")
    if found.model_digest != model.digest.hex():
        raise ConfigurationError(f"{path}: another model was measured; give the evaluation of this one")
    return Measured(figures=figures, own=False, privacy=privacy)


def measure(model: Model, table: Any) -> Measured:
    """The evaluation of a model on labelled rows that are the learner's own. Nothing is asked.

    table: a path, an Arrow table or a data frame. Raises DataError as radobase.tables.tables does, and if no row
    is usable. Warns if some are not, or many cells were changed.
    """
    rows = OwnRows(model.schema, table)
    options = EvaluationOptions(bins=OWN_BINS, edges_part=Fraction(0))
    found = model.scoring.evaluate(model, rows, options, unseen=True)
    return Measured(figures=found, own=True, privacy=None, changes=rows.changes)


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
            coding=schema.label.coding,
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
