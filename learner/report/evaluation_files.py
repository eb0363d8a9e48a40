"""What the files of `rado learner evaluate --format json` hold, checked before a report believes them."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from dpcore.evaluation.class_evaluation import ClassEvaluation
from dpcore.evaluation.count_evaluation import CountEvaluation
from dpcore.evaluation.evaluation import CalibrationBin, Evaluation
from dpcore.evaluation.event_evaluation import GROUPS, BrierAt, EventEvaluation, RiskGroup
from dpcore.evaluation.intervals import Bounded, Interval, Proportion
from dpcore.evaluation.measured_evaluation import MeasuredEvaluation
from dpcore.evaluation.observed_bins import ObservedBin
from dpcore.evaluation.options import MOST_BINS
from dpcore.evaluation.scores import RocPoint
from dpcore.evaluation.thresholds import ThresholdPoint
from dpcore.records.features import Classes, Count, EventTime, Label, event_time
from dpcore.records.features import Number as NumberLabel
from dpcore.records.held_back import HeldBack, Part
from learner.model import Model

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

    def evaluation(self, model: Model) -> Any:
        """The evaluation. Raises ValueError, or a RadofedError, if fields contradict one another, or the model."""
        raise NotImplementedError


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
    calibration: Annotated[list[_CalibrationBin], Field(min_length=2, max_length=MOST_BINS)]
    roc: Annotated[list[_RocPoint], Field(min_length=1, max_length=MOST_BINS)]
    positive_share: _Proportion = _UNKNOWN
    f1: _Proportion = _UNKNOWN
    average_precision: _Proportion = _UNKNOWN
    thresholds: Annotated[list[_ThresholdPoint], Field(max_length=MOST_BINS)] = []
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
            average_precision=self.average_precision.read(),
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


class _Estimate(_Read):
    estimate: Number
    lower: Number
    upper: Number

    def ends(self) -> tuple[float, float, float]:
        if not self.lower <= self.estimate <= self.upper:
            raise ValueError("an interval without its estimate")
        return self.estimate, self.lower, self.upper


class _ObservedBin(_Read):
    lower: Number
    upper: Number
    predicted: Number
    rows: Number
    observed: _Estimate | None

    def read(self) -> ObservedBin:
        if not self.lower <= self.predicted <= self.upper:
            raise ValueError("a bin whose prediction is not between its ends")
        return ObservedBin(self.lower, self.upper, self.predicted, self.rows, _ends(self.observed))


_Bins = Annotated[list[_ObservedBin], Field(min_length=1, max_length=MOST_BINS)]


class _NumberFile(_Asked):
    """`MeasuredEvaluation.to_dict`."""

    rows: Annotated[int, Field(ge=1)]
    confidence: _Confidence
    of_logarithms: bool
    r2: _Estimate | None
    bias: _Estimate | None
    absolute_error: _Estimate | None
    squared_error: _Estimate | None
    largest_error: Size
    bins: _Bins
    edges_found: bool
    rounding: Size
    part: _Part | None
    unseen: bool

    def evaluation(self, model: Model) -> MeasuredEvaluation:
        """The evaluation. Raises ValueError if fields contradict one another, or the model."""
        label = model.schema.label
        if self.of_logarithms != (isinstance(label, NumberLabel) and label.log):
            raise ValueError("its errors are not on the scale of the model")
        return MeasuredEvaluation(
            rows=self.rows,
            confidence=self.confidence,
            of_logarithms=self.of_logarithms,
            r2=_ends(self.r2),
            bias=_ends(self.bias),
            absolute_error=_ends(self.absolute_error),
            squared_error=_ends(self.squared_error),
            largest_error=self.largest_error,
            bins=tuple(each.read() for each in self.bins),
            edges_found=self.edges_found,
            rounding=self.rounding,
            part=None if self.part is None else self.part.read(),
            unseen=self.unseen,
        )


class _CountFile(_Asked):
    """`CountEvaluation.to_dict`."""

    rows: Annotated[int, Field(ge=1)]
    confidence: _Confidence
    explained: _Estimate | None
    rate: _Estimate | None
    least_rate: Size
    largest_rate: Size
    most: Annotated[int, Field(ge=1)]
    bins: _Bins
    edges_found: bool
    rounding: Size
    part: _Part | None
    unseen: bool

    def evaluation(self, model: Model) -> CountEvaluation | MeasuredEvaluation:
        """The evaluation. Raises ValueError if fields contradict one another, or the model."""
        if model.link != "log":
            raise ValueError("its rates are not those of the model")
        return CountEvaluation(
            rows=self.rows,
            confidence=self.confidence,
            explained=_ends(self.explained),
            rate=_ends(self.rate),
            least_rate=self.least_rate,
            largest_rate=self.largest_rate,
            most=self.most,
            bins=tuple(each.read() for each in self.bins),
            edges_found=self.edges_found,
            rounding=self.rounding,
            part=None if self.part is None else self.part.read(),
            unseen=self.unseen,
        )


def _ends(found: _Estimate | None) -> Bounded | None:
    return None if found is None else Bounded(*found.ends())


class _BrierAt(_Read):
    border: Number
    score: _Estimate | None
    of_equal: Size | None


class _RiskGroup(_Read):
    lower: Number
    upper: Number
    rows: Number
    predicted: list[Share]
    observed: list[_Estimate]


class _TimeFile(_Asked):
    """`EventEvaluation.to_dict`."""

    rows: Annotated[int, Field(ge=1)]
    confidence: _Confidence
    borders: list[Number]
    concordance: _Estimate | None
    brier: list[_BrierAt]
    groups: Annotated[list[_RiskGroup], Field(min_length=1, max_length=GROUPS)]
    bins: Annotated[int, Field(ge=1, le=MOST_BINS)]
    edges_found: bool
    rounding: Size
    deviation: Size
    part: _Part | None
    unseen: bool

    def evaluation(self, model: Model) -> EventEvaluation:
        """The evaluation. Raises ValueError if fields contradict one another, or the model."""
        borders = event_time(model.schema.label, "an evaluation of times").borders
        if tuple(self.borders) != borders or [each.border for each in self.brier] != list(borders):
            raise ValueError("its borders are not those of the model")
        if any(len(each.predicted) != len(borders) or len(each.observed) > len(borders) for each in self.groups):
            raise ValueError("its survival is not at the borders of the model")
        return EventEvaluation(
            rows=self.rows,
            confidence=self.confidence,
            borders=borders,
            concordance=_ends(self.concordance),
            brier=tuple(BrierAt(each.border, _ends(each.score), each.of_equal) for each in self.brier),
            groups=tuple(
                RiskGroup(
                    each.lower,
                    each.upper,
                    each.rows,
                    tuple(each.predicted),
                    tuple(Bounded(*at.ends()) for at in each.observed),
                )
                for each in self.groups
            ),
            bins=self.bins,
            edges_found=self.edges_found,
            rounding=self.rounding,
            deviation=self.deviation,
            part=None if self.part is None else self.part.read(),
            unseen=self.unseen,
        )


FILES: Mapping[str, type[_File | _ClassFile | _NumberFile | _CountFile | _TimeFile]] = {
    Label.type: _File,
    Classes.type: _ClassFile,
    NumberLabel.type: _NumberFile,
    Count.type: _CountFile,
    EventTime.type: _TimeFile,
}
"""What a file has, by the type of the model's label."""


def file_of(model: Model) -> type[_Asked]:
    """What a file about this model has."""
    label = model.schema.label
    return FILES[NumberLabel.type if label.coding.is_measured and model.link == "identity" else label.type]
