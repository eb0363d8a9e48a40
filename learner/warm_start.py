"""A training that starts from an earlier model: what is checked before anything is asked, and what both protect.

The earlier releases cost what they cost: the new model depends on them. About other epochs of rows they compose in
parallel with the new answers, else both figures add up ("Epochs of rows" in docs/explanation/proofs.md).
"""

import inspect
import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from dpcore.accounting.protection import WHOLE
from dpcore.errors import ConfigurationError
from dpcore.records.features import two_classes
from dpcore.records.schema import Schema
from learner.estimators import BY_QUERIES, class_of
from learner.model import Model
from wire.query import Query

IN_PARALLEL = (
    "The training started from an earlier model, whose releases are about other epochs of rows of the same federation. "
    "A record is in one epoch, so the figures are the larger of both."
)
IN_SEQUENCE = (
    "The training started from an earlier model, whose releases may be about the same records. The figures are the "
    "sums of both (basic composition)."
)


def load_start(
    source: Path | Model, estimator: str, schema: Schema, held_back: Fraction | None, delta: Fraction
) -> Model:
    """The model to start from, or that of a file; nothing is asked. held_back: the share that the training leaves out.

    Raises ModelError if the file is no model, or was changed; ConfigurationError if the estimator cannot start from
    this one: another schema, a feature map, rows that are to be held back, or no bound for records.
    """
    if "start" not in inspect.signature(class_of(estimator).fit_queries).parameters:
        able = [name for name in BY_QUERIES if "start" in inspect.signature(class_of(name).fit_queries).parameters]
        raise ConfigurationError(
            f"{estimator} does not start from a model: leave --start-from out, or choose {' or '.join(able)}"
        )
    model = source if isinstance(source, Model) else Model.load(source)
    path = "the model to start from" if isinstance(source, Model) else source
    if model.schema.digest != schema.digest:
        raise ConfigurationError(
            f"{path}: the model's schema {model.schema.name!r} is another one than {schema.name!r} "
            f"({model.schema.digest.hex()[:16]}, {schema.digest.hex()[:16]}): start from a model of the same schema"
        )
    two_classes(model.schema.label, "a start from an earlier model")
    if model.feature_map is not None:
        raise ConfigurationError(
            f"{path}: {model.estimator} learned over a feature map, and {estimator} learns over the schema's "
            "coordinates: start from a model without a map"
        )
    if held_back is not None and (model.held_back is None or model.held_back < held_back):
        seen = "all rows" if model.held_back is None else f"all but a share of {float(model.held_back):g}"
        raise ConfigurationError(
            f"{path}: the model was trained on {seen}, and so on rows that this training holds back: an evaluation on "
            "them would be wrong about new rows. Start from a model that held back as many, or leave --hold-back out"
        )
    statement = model.statement
    if statement.scope not in WHOLE or statement.delta is None:
        raise ConfigurationError(
            f"{path}: nothing bounds what the model's releases reveal about whole records, so nothing would for the "
            "new model: start from a model whose releases protect records"
        )
    if statement.delta + delta >= 1:
        raise ConfigurationError(f"{path}: its delta of {statement.delta:g} and this one add up to 1: lower --delta")
    return model


def epochs_of(queries: Sequence[Query]) -> tuple[str, ...]:
    """The epochs that all these queries are about, sorted; none if one of them is about all rows."""
    found = {query.epoch for query in queries}
    return tuple(sorted(name for name in found if name is not None)) if None not in found else ()


def started(model: Model, start: Model) -> Model:
    """The model of a training that started from another one, with the statement of both, and where it is from."""
    own, earlier = model.statement, start.statement
    apart = bool(model.epochs and start.epochs) and not set(model.epochs) & set(start.epochs)
    together = max if apart else _added
    statement = replace(
        own,
        epsilon=together(_figure(own.epsilon), _figure(earlier.epsilon)),
        delta=together(_figure(own.delta), _figure(earlier.delta)),
        epsilon_if_others_collude=together(
            _figure(own.epsilon_if_others_collude), _figure(earlier.epsilon_if_others_collude)
        ),
        theorem_epsilon=None,
        assumptions=tuple(
            dict.fromkeys([IN_PARALLEL if apart else IN_SEQUENCE, *own.assumptions, *earlier.assumptions])
        ),
        warnings=tuple(dict.fromkeys([*own.warnings, *earlier.warnings])),
        releases=own.releases + earlier.releases,
    )
    epochs = tuple(sorted({*model.epochs, *start.epochs})) if model.epochs and start.epochs else ()
    return replace(model, statement=statement, epochs=epochs, started_from=start.digest)


def _added(one: float, other: float) -> float:
    """The sum, not below the exact one."""
    return math.nextafter(one + other, math.inf) if one and other else one + other


def _figure(figure: float | None) -> float:
    if figure is None:
        raise ConfigurationError(
            "nothing bounds what the releases reveal about whole records: start from a model that protects them"
        )
    return figure
