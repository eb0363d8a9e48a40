"""The confusion matrix of several classes by counts: its cells, their sensitivity, and its figures."""

import numpy as np
import pytest

from dpcore.errors import ConfigurationError, ShapeError
from dpcore.evaluation.class_evaluation import class_cells, evaluate_classes
from dpcore.predicates.disjoint import batch_sensitivity
from dpcore.predicates.evaluation import check, sums
from dpcore.predicates.expressions import FormCoordinates, LabelClass, PredicateError, swap_label
from dpcore.predicates.notation import described, parse
from dpcore.queries.statistic import StatisticQuery
from dpcore.records.coding import class_codes
from dpcore.records.encoding import store
from dpcore.records.features import Classes, Label, RealFeature
from dpcore.records.records import Records
from dpcore.records.schema import Schema
from dpcore.statistics.accuracy import Estimates
from rado.v1 import query_pb2
from wire.errors import WireError
from wire.query_kinds import read_predicates, write_predicates

REALS = tuple(RealFeature(name=name, lower=-1.0, upper=1.0) for name in "ab")


def schema(k: int) -> Schema:
    return Schema(name="s", label=Classes(column="y", values=tuple(f"c{code}" for code in range(k))), features=REALS)


def made(k: int, rows: int = 500, seed: int = 3) -> tuple[Records, np.ndarray]:
    generator = np.random.default_rng(seed)
    x = np.column_stack([generator.uniform(-1, 1, (rows, 2)), np.ones(rows)])
    codes, usable = generator.integers(0, k, rows).astype(np.int8), generator.random(rows) > 0.1
    stored = store(x)
    stored[~usable], codes[~usable] = 0, 1
    return Records(stored, codes, usable, coding=class_codes(k)), generator.normal(size=(k, 3))


def confusion(held: Records, theta: np.ndarray) -> np.ndarray:
    found = np.zeros((held.coding.classes, held.coding.classes), dtype=int)
    kept = held.usable
    np.add.at(found, (held.labels[kept], ((held.features[kept] * 2.0**-30) @ theta.T).argmax(axis=1)), 1)
    return found


@pytest.mark.parametrize("k", [2, 3, 11])
def test_cells_are_the_confusion_matrix_and_a_row_is_in_one(k):
    held, theta = made(k)
    cells = class_cells(theta, schema(k))
    assert sums(cells, schema(k), held, 0).reshape(k, k).tolist() == confusion(held, theta).tolist()
    found = batch_sensitivity(cells)
    assert (found.l1, found.l2_squared) == (2, 2)


def test_of_equal_scores_the_first_class_is_predicted():
    held, theta = made(3)
    theta[2] = theta[0]
    found = sums(class_cells(theta, schema(3)), schema(3), held, 0).reshape(3, 3)
    assert found.tolist() == confusion(held, theta).tolist()
    assert not found[:, 2].any()


class Exact:
    """An oracle without noise."""

    def __init__(self, held: Records, of: Schema) -> None:
        self.held, self.schema, self.rows = held, of, held.rows

    def statistic(self, predicates, **_options) -> Estimates:
        values = sums(predicates, self.schema, self.held, 0) / self.held.rows
        return Estimates(values, self.held.rows, 0.95, 0.0, 0.0, 0.0, 0.0)


def test_figures_are_those_of_the_matrix():
    held, theta = made(3)
    found = evaluate_classes(theta, Exact(held, schema(3)), unseen=True)
    matrix = confusion(held, theta)
    assert found.confusion.tolist() == matrix.tolist()
    assert found.error.estimate == pytest.approx(1 - np.trace(matrix) / matrix.sum())
    assert found.error.estimate in found.error.on_rows
    for code in range(3):
        assert found.recalls[code].estimate == pytest.approx(matrix[code, code] / matrix[code].sum())
        assert found.precisions[code].estimate == pytest.approx(matrix[code, code] / matrix[:, code].sum())
        assert found.recalls[code].on_distribution.width > found.recalls[code].on_rows.width
    assert found.to_dict()["confusion"]["c0"]["c1"] == matrix[0, 1]
    assert sum("'c1'" in line for line in found.sentences()) == 1


def test_what_does_not_fit_is_refused():
    _, theta = made(3)
    with pytest.raises(ShapeError, match="a row of weights for each class"):
        class_cells(theta[:2], schema(3))
    with pytest.raises(ConfigurationError, match="the same for all classes"):
        class_cells(np.ones((3, 3)), schema(3))
    with pytest.raises(ConfigurationError, match="at most 25"):
        class_cells(np.random.default_rng(1).normal(size=(26, 3)), schema(26))


def test_a_class_is_written_and_travels_as_its_place():
    asked = (parse('y == "c1"'), parse('(y != "c0") & (x["a"] >= 0)'))
    assert asked[0] == LabelClass("c1")
    assert [parse(described(each)) for each in asked] == list(asked)
    message = query_pb2.StatisticQuery()
    write_predicates(asked, FormCoordinates(schema(3), None), message)
    assert message.nodes[0].label_class == 1
    assert read_predicates(message, FormCoordinates(schema(3), None)) == asked
    with pytest.raises(WireError, match="names class 1, and the schema's label has 0"):
        read_predicates(message, FormCoordinates(Schema(name="s", label=TWO, features=REALS), None))


TWO = Label(column="y", positive=("1",))


def test_predicates_about_the_other_type_of_label_are_refused():
    with pytest.raises(PredicateError, match="compare y with 1 or -1"):
        check([LabelClass("c0")], Schema(name="s", label=TWO, features=REALS))
    with pytest.raises(PredicateError, match="lists no class 'c9'"):
        check([LabelClass("c9")], schema(3))
    with pytest.raises(PredicateError, match="no sign"):
        check([parse("y == 1")], schema(3))
    with pytest.raises(PredicateError, match="flip in no known way"):
        swap_label(LabelClass("c0"))
    with pytest.raises(PredicateError):
        StatisticQuery((parse("y == 1"),), schema(3), None)
