"""How good a model is: what `rado learner evaluate` measured on the parties' rows, or the learner's own labelled rows.

Evaluations of both sorts have the same figures and intervals (dpcore.evaluation.evaluation).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from dpcore.errors import ConfigurationError, DataError, RadofedError
from dpcore.estimators.oracle import WHOLE
from dpcore.evaluation.class_evaluation import ClassEvaluation
from dpcore.evaluation.count_evaluation import CountEvaluation
from dpcore.evaluation.evaluation import Evaluation
from dpcore.evaluation.event_evaluation import MOST_COUNTS, EventEvaluation
from dpcore.evaluation.measured_evaluation import MeasuredEvaluation
from dpcore.evaluation.options import EvaluationOptions
from dpcore.numbers.fixed_point import STORED_FRACTION_BITS
from dpcore.predicates.evaluation import sums
from dpcore.predicates.expressions import Predicate, is_boolean
from dpcore.queries.statement import PrivacyStatement
from dpcore.records.encoding import Change, changes, summed, why_unusable
from dpcore.records.feature_map import FeatureMap
from dpcore.records.records import Records
from dpcore.records.schema import Schema
from dpcore.statistics.accuracy import Estimates
from learner.measured_models import MeasuredValues, measured_values
from learner.model import Model
from learner.predictions import warn_of
from learner.report.evaluation_files import file_of
from radobase.reading import FileKind, read_json, with_remedy
from radobase.tables.tables import as_source, open_table, stored_blocks

OWN_BINS = 10
MOST_OWN = 64
"""Bins of scores of own rows with times to an event: more bins leave less open about the order within one."""
_REMEDY = "give the file that `rado learner evaluate MODEL --format json > FILE` wrote"
_EVALUATION = FileKind(with_remedy(_REMEDY), limit_bytes=4 << 20)
_FORMAT = 1
"""The version of the commands' JSON that is read (radofed.cli.output)."""


Figures = Evaluation | ClassEvaluation | MeasuredEvaluation | MeasuredValues | CountEvaluation | EventEvaluation
"""What an evaluation says, by the type of the label, and for numbers and counts by whose rows they are."""


@dataclass(frozen=True, eq=False)
class Measured:
    """An evaluation."""

    figures: Figures
    own: bool
    """Whether on the learner's own rows."""
    privacy: PrivacyStatement | None
    """What asking cost; None for own rows."""
    changes: tuple[Change, ...] = ()
    """What the schema's policies changed in own rows, what lost most first."""

    @property
    def of_classes(self) -> Evaluation | ClassEvaluation | None:
        """The figures, if the label has classes."""
        return self.figures if isinstance(self.figures, Evaluation | ClassEvaluation) else None

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
        found = file_of(model).model_validate(data)
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


def evaluation_content(model: Model, file: Path, figures: Figures, privacy: PrivacyStatement) -> dict[str, Any]:
    """What `rado learner evaluate --format json` prints of an evaluation, and what `read_evaluation` reads."""
    data = {"model": str(file), "model_digest": model.digest.hex(), **figures.to_dict(), "privacy": privacy.to_dict()}
    return {"schema_version": _FORMAT, "status": "ok", "data": data}


def measure(model: Model, table: Any) -> Measured:
    """The evaluation of a model on labelled rows that are the learner's own. Nothing is asked.

    table: a path, an Arrow table or a data frame. Raises DataError as radobase.tables.tables does, and if no row
    is usable. Warns if some are not, or many cells were changed.
    """
    if model.schema.label.coding.is_measured:
        values = measured_values(model, table)
        return Measured(figures=values, own=True, privacy=None, changes=values.errors.changes)
    rows = OwnRows(model.schema, table)
    intervals = model.schema.label.coding.intervals
    options = EvaluationOptions(bins=OWN_BINS, edges_part=Fraction(0))
    if intervals:
        options = EvaluationOptions(bins=min(MOST_OWN, MOST_COUNTS // (2 * intervals + 1)))
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
        bits = 0 if all(map(is_boolean, predicates)) else STORED_FRACTION_BITS
        means = np.ldexp(sums(predicates, self.schema, records, bits).astype(np.float64), -bits) / self.rows
        return Estimates(means, self.rows, confidence, 0.0, 0.0, 0.0, 0.0)
