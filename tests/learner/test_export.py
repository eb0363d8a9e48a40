"""An exported model predicts as the original: as a scikit-learn estimator, and as JSON read without radofed."""

import csv
import json
import math
import re
import sys
import unicodedata
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from dpcore.errors import ConfigurationError, DataError, ModelError
from dpcore.numbers.fixed_point import ONE
from dpcore.queries.statement import PrivacyStatement
from dpcore.records.encoding import Numbers, WantedColumn, encode
from dpcore.records.feature_map import Column, FeatureMap, Hat, Product, Term
from dpcore.records.schema import BooleanFeature, CategoryFeature, Label, RealFeature, Schema, ThresholdFeature
from learner.export import FORMAT, to_original_units
from learner.model import Model
from learner.predictions import predict
from learner.uncertainty import Calibration
from radofed.cli.entry_point import run

# Names are checked on data frames; of an array, which has none, scikit-learn says so.
pytestmark = pytest.mark.filterwarnings("ignore:X does not have valid feature names")

STATEMENT = PrivacyStatement("one record's 'smoker'", "marginal", 1.5, 1e-6, 2.5, None, ("Counted.",), ("Marginal.",))
SCHEMA = Schema(
    name="visits",
    label=Label(column="ill", positive=("sick",), negative=("well",)),
    features=(
        RealFeature(name="age", lower=18.0, upper=95.0, out_of_bounds="clip", missing="impute", impute=41.5),
        RealFeature(name="weight", column="kg", lower=-2.0, upper=180.5, missing="zero-vector"),
        RealFeature(name="year", lower=1990.0, upper=2030.0, out_of_bounds="zero-vector"),
        BooleanFeature(
            name="smoker", true=("yes", "1"), false=("no",), missing="impute", unknown="impute", impute=True
        ),
        BooleanFeature(name="insured", true=("y",), false=("n",), unknown="zero-vector"),
        CategoryFeature(name="ward", values=("north", "east", "0"), unknown="zero", missing="impute", impute="east"),
        CategoryFeature(name="car", values=("red", "blue"), unknown="zero-vector", missing="zero-vector"),
        ThresholdFeature(name="dear", column="bill", threshold=99.5, missing="impute", impute=False),
    ),
)


def model(theta=None, schema=SCHEMA, seed=0):
    weights = np.random.default_rng(seed).normal(size=schema.d) * 3 if theta is None else np.array(theta, dtype=float)
    return Model(weights, schema, "mean-variance", bytes(range(32)), STATEMENT)


def rows(count=400, seed=1):
    """Cells as texts; every policy of the schema applies many times."""
    random = np.random.default_rng(seed)

    def some(*texts):
        return texts[random.integers(len(texts))]

    def number(low, high):
        return repr(float(random.uniform(low, high)))

    return [
        {
            "age": some(number(18, 95), number(0, 120), number(18, 95), "95", ""),
            "kg": some(number(-2, 180.5), number(-2, 180.5), "-2", "180.5", "" if random.random() < 0.2 else "70"),
            "year": some("1990", number(1990, 2030), number(1990, 2030), number(1980, 2040)),
            "smoker": some("yes", "no", "1", " yes ", "", "never"),
            "insured": some("y", "n", "y", "n", "maybe" if random.random() < 0.2 else "n"),
            "ward": some("north", "east", "0", "west", ""),
            "car": some("red", "blue", "red", "green" if random.random() < 0.2 else "red"),
            "bill": some("99.5", "99.4999", number(0, 200), ""),
        }
        for _ in range(count)
    ]


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "rows.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows(1)[0]))
        writer.writeheader()
        writer.writerows(rows())
    return path


class NoPrediction(Exception):  # noqa: N818  (a word of the file's rules)
    """The exported rules give the row no prediction."""


def cell_or_imputed(feature, cell, policy):
    if feature[policy] == "impute":
        return feature["impute"]
    raise NoPrediction


def adds(feature, cell):
    """What a feature adds to the margin, computed from the exported file alone."""
    imputed = cell_or_imputed(feature, cell, "missing") if not cell else None
    if feature["type"] == "real":
        value = float(cell) if imputed is None else imputed
        if not feature["lower"] <= value <= feature["upper"]:
            if feature["out_of_bounds"] != "clip":
                raise NoPrediction
            value = min(max(value, feature["lower"]), feature["upper"])
        return feature["weight"] * value
    if feature["type"] == "threshold":
        high = float(cell) >= feature["threshold"] if imputed is None else imputed
        return feature["if_at_least"] if high else feature["if_below"]
    if feature["type"] == "boolean":
        if imputed is None and cell not in feature["true"] + feature["false"]:
            imputed = cell_or_imputed(feature, cell, "unknown")
        true = cell in feature["true"] if imputed is None else imputed
        return feature["if_true"] if true else feature["if_false"]
    weights = dict(feature["weights"])
    value = cell if imputed is None else imputed
    if value not in weights and feature["unknown"] != "zero":
        raise NoPrediction
    return weights.get(value, 0.0)


def margin(exported, row):
    try:
        return exported["intercept"] + sum(adds(f, row[f["column"]].strip(" \t\r\n")) for f in exported["features"])
    except NoPrediction:
        return math.nan


@pytest.mark.parametrize("seed", range(3))
def test_the_exported_rules_give_the_models_margins(table, seed):
    exported = json.loads(json.dumps(model(seed=seed).to_original_units(), allow_nan=False))
    scores = predict(model(seed=seed), table).scores
    found = np.array([margin(exported, row) for row in rows()])
    assert 20 < np.isnan(scores).sum() < 380
    assert np.array_equal(np.isnan(found), np.isnan(scores))
    assert found == pytest.approx(scores, abs=1e-9, nan_ok=True)
    # The comparison can fail: it detects one weight off by a thousandth.
    exported["features"][1]["weight"] *= 1.001
    off = np.array([margin(exported, row) for row in rows()])
    assert np.nanmax(np.abs(off - scores)) > 1e-4


STATED = replace(
    SCHEMA,
    texts=("nfc", "trim", "case"),
    features=tuple(
        replace(feature, **changes)
        for feature, changes in zip(
            SCHEMA.features,
            (
                {"unreadable": "impute"},
                {},
                {"missing": "zero-vector", "unreadable": "zero-vector"},
                {},
                {"missing": "zero-vector"},
                {"values": ("Nörth", "east", "0")},
                {},
                {"unreadable": "impute"},
            ),
            strict=True,
        )
    ),
)


def odd(text, random):
    """The text otherwise spelled, as another site writes it; now and then what is no number."""
    other = [text, f"\u00a0{text}\ufeff", text.upper(), unicodedata.normalize("NFD", text), "n/a", "inf", "\u200b"]
    return other[random.choice(len(other), p=[0.4, 0.15, 0.15, 0.15, 0.05, 0.05, 0.05])]


def in_words(steps, text):
    """The exported rule on texts, done as it says."""
    text = text.strip(" \t\r\n")
    blanks = "".join(chr(c) for c in range(0x3001) if chr(c).isspace() and not 0x1C <= c <= 0x1F) + "\u200b\u2060\ufeff"
    if "nfc" in steps:
        text = unicodedata.normalize("NFC", text)
    if "trim" in steps:
        text = text.strip(blanks)
    if "case" in steps:
        text = unicodedata.normalize("NFC", text.casefold()) if "nfc" in steps else text.casefold()
    return text


@pytest.mark.more
def test_the_exported_rules_on_texts_and_unreadable_cells_give_the_models_margins(tmp_path):
    random = np.random.default_rng(3)
    cells = [{column: odd(cell.replace("north", "nörth"), random) for column, cell in row.items()} for row in rows()]
    path = tmp_path / "rows.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(cells[0]))
        writer.writeheader()
        writer.writerows(cells)
    made = model(schema=STATED)
    exported = json.loads(json.dumps(made.to_original_units(), allow_nan=False))
    form = partial(in_words, exported["texts"])
    for feature in exported["features"]:
        if "weights" in feature:
            feature["weights"] = [[form(value), weight] for value, weight in feature["weights"]]
            feature["impute"] = feature["impute"] and form(feature["impute"])
    found = []
    for row in cells:
        read, has_none = {}, False
        for feature in exported["features"]:
            cell = form(row[feature["column"]])
            if feature["type"] in ("real", "threshold") and cell in ("n/a", "inf"):
                policy = feature.get("unreadable", "refuse" if feature["missing"] == "refuse" else "zero-vector")
                has_none |= policy != "impute"
                cell = ""
            read[feature["column"]] = cell
        found.append(math.nan if has_none else margin(exported, read))
    with pytest.warns(UserWarning, match="rows are not usable"):
        scores = predict(made, path).scores
    assert 50 < np.isnan(scores).sum() < 380
    assert np.array(found) == pytest.approx(scores, abs=1e-9, nan_ok=True)


def test_original_units_by_hand():
    exported = model([2.0, 0.5, -1.0, 0.25, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]).to_original_units()
    by_name = {feature["name"]: feature for feature in exported["features"]}
    assert by_name["age"]["weight"] == pytest.approx(4 / 77, rel=1e-15)
    assert by_name["weight"]["weight"] == pytest.approx(1 / 182.5, rel=1e-15)
    centres = -2 * 113 / 77 - 0.5 * 178.5 / 182.5 + 4020 / 40
    assert exported["intercept"] == pytest.approx(7 + centres, rel=1e-14)
    assert (by_name["smoker"]["if_true"], by_name["smoker"]["if_false"]) == (0.25, -0.25)
    assert by_name["ward"]["weights"] == [["north", 1.0], ["east", 2.0], ["0", 3.0]]
    assert (by_name["dear"]["if_at_least"], by_name["dear"]["if_below"]) == (6.0, -6.0)
    assert (by_name["weight"]["column"], by_name["weight"]["missing"]) == ("kg", "zero-vector")
    assert exported["label"]["positive"] == ["sick"]
    assert exported["format"] == FORMAT
    assert exported["privacy"] == json.loads(json.dumps(STATEMENT.to_dict()))
    assert exported["privacy_in_words"] == STATEMENT.sentences()


def test_a_schema_without_bias():
    schema = replace(SCHEMA, bias=False)
    exported = model(schema=schema).to_original_units()
    weights = model(schema=schema).theta
    assert len(weights) == 11
    assert exported["intercept"] == pytest.approx(
        -weights[0] * 113 / 77 - weights[1] * 178.5 / 182.5 - weights[2] * 4020 / 40, rel=1e-14
    )
    estimator = model(schema=schema).to_sklearn()[-1]
    x = np.random.default_rng(1).uniform(-1, 1, size=(5, 11))
    assert estimator.intercept_.tolist() == [0.0]
    assert estimator.n_features_in_ == 11
    assert estimator.decision_function(x) == pytest.approx(model(schema=schema).scores(x), abs=1e-12)


def test_a_weight_per_unit_beyond_the_doubles_is_refused():
    schema = Schema(
        name="narrow", label=SCHEMA.label, features=(RealFeature(name="x", lower=0.0, upper=1e-308),), bias=False
    )
    with pytest.raises(ModelError, match="weight of 'x' per unit exceeds the range of a double; widen"):
        to_original_units(model([10.0], schema=schema))


@given(
    lower=st.floats(-1e6, 1e6),
    width=st.floats(1e-2, 1e6),
    theta=st.lists(st.floats(-100, 100), min_size=2, max_size=2),
    share=st.floats(0, 1),
)
def test_any_bounds(lower, width, theta, share):
    feature = RealFeature(name="x", lower=lower, upper=lower + width)
    schema = Schema(name="one", label=SCHEMA.label, features=(feature,))
    value = min(max(lower + share * width, feature.lower), feature.upper)
    cells = {WantedColumn("x", "numbers"): Numbers(np.array([value]), np.zeros(1, dtype=bool))}
    score = model(theta, schema=schema).scores(encode(schema, cells, 1, label=False).x)[0]
    exported = model(theta, schema=schema).to_original_units()
    term = exported["features"][0]["weight"] * value
    # Only the rounding of the terms remains.
    assert term + exported["intercept"] == pytest.approx(score, abs=1e-12 + 1e-15 * 8 * (abs(term) + 100))


def test_the_estimator_predicts_as_the_model_does(table):
    fitted = model()
    pipeline = fitted.to_sklearn(unusable="zeros")
    check_is_fitted(pipeline)
    usable = SCHEMA.encode(table).usable
    scores = predict(fitted, table)
    columns = ["age", "kg", "year", "smoker", "insured", "ward", "car", "bill"]
    assert pipeline.feature_names_in_.tolist() == columns
    assert pipeline[:-1].get_feature_names_out().tolist() == list(SCHEMA.coordinates[:-1])
    assert pipeline.classes_.tolist() == ["well", "sick"]
    frame = pa.csv.read_csv(table)
    # Neither the label's column nor the order of columns matters.
    frame = frame.drop_columns(["ill"] if "ill" in frame.column_names else []).select(columns[::-1])
    margins, labels = pipeline.decision_function(frame), pipeline.predict(frame)
    chances = pipeline.predict_proba(frame)
    assert margins[usable] == pytest.approx(scores.scores[usable], abs=1e-9)
    assert np.array_equal(labels[usable] == "sick", scores.labels[usable] > 0)
    assert set(labels[usable].tolist()) == {"well", "sick"}
    assert chances[usable, 1] == pytest.approx(1 / (1 + np.exp(-scores.scores[usable])), abs=1e-12)
    assert chances[usable, 1] == pytest.approx(scores.probabilities[usable], abs=1e-12)
    # The model has no prediction for rows that the schema drops; zeros have the intercept's sign.
    assert margins[~usable] == pytest.approx(np.full((~usable).sum(), fitted.theta[-1]), abs=1e-12)
    flipped = replace(fitted, theta=-fitted.theta).to_sklearn(unusable="zeros")
    assert not np.array_equal(flipped.predict(frame)[usable], labels[usable])


@pytest.fixture(scope="module")
def score():
    """The reference scorer of the documentation: both of its blocks."""
    page = Path(__file__).resolve().parents[2] / "docs/how-to/use-a-model-elsewhere.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    names: dict = {}
    exec("\n".join(block for block in blocks if "def " in block), names)
    return names["score"]


@pytest.mark.parametrize("kind", ["logistic", "calibrated", "none", "map"])
def test_the_scorer_of_the_documentation(table, score, kind):
    fitted = model()
    if kind == "calibrated":
        fitted = replace(
            fitted, calibration=Calibration(np.array([-4, 0, 1, 5]), np.array([0.1, 0.3, 0.3, 0.9]), "made up")
        )
    if kind == "none":
        fitted = replace(fitted, estimator="newton")
    if kind == "map":
        terms = (Term(Hat(0, -ONE // 2, 0, ONE // 3)), Term(Column(3)), Term(Column(5)), Term(Product(0, 1)))
        fitted = replace(fitted, feature_map=FeatureMap(terms, bias=True), theta=np.array([2.0, -1.0, 0.7, 3.0, 0.1]))
    exported = json.loads(json.dumps(fitted.to_original_units(), allow_nan=False))
    expected = predict(fitted, table)
    found = [score(exported, row) for row in rows()]
    assert [one is None for one in found] == (expected.labels == 0).tolist()
    for one, margin_of, label, place in zip(found, expected.scores, expected.labels, range(len(found)), strict=True):
        if one is not None:
            assert one[0] == pytest.approx(margin_of, abs=1e-6)
            assert one[1] == ("sick" if label > 0 else "well")
            chance = None if expected.probabilities is None else expected.probabilities[place]
            assert one[2] == (None if chance is None else pytest.approx(chance, abs=1e-6))


@pytest.mark.parametrize("prefix", [{}, {"prefix": 7}])
def test_the_scorer_of_the_documentation_reads_texts_as_the_schema_states(tmp_path, score, prefix):
    """Other spellings of listed values, and numbers that are none."""
    features = (
        RealFeature(name="age", lower=18.0, upper=95.0, missing="impute", impute=41.5, unreadable="impute"),
        RealFeature(name="kg", lower=0.0, upper=200.0, missing="zero-vector", unreadable="zero-vector"),
        BooleanFeature(name="smoker", true=("Oui",), false=("Non",), unknown="zero-vector"),
        CategoryFeature(name="ward", values=("Évry", "Straße"), unknown="zero", **prefix),
    )
    schema = Schema(name="visits", label=SCHEMA.label, features=features, texts=("nfc", "trim", "case"))
    fitted = model(schema=schema)
    cells = {
        "age": ("50", "abc", "inf", "1e400", " 61 ", "", "6_1", "50"),
        "kg": ("70", "n/a", "70", "\u00a070", "70", "70", "70", "70"),
        "smoker": ("oui", "OUI\u00a0", "non", "\u200bNon", "Non", "perhaps", "oui", "oui"),
        "ward": ("évry", "E\u0301VRY", "STRASSE", " straßen", "Paris", "Évry", "Évry", "Évry" + "\u00a0" * 256),
    }
    lines = [dict(zip(cells, row, strict=True)) for row in zip(*cells.values(), strict=True)]
    path = tmp_path / "texts.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(cells))
        writer.writeheader()
        writer.writerows(lines)
    expected = predict(fitted, path)
    exported = json.loads(json.dumps(fitted.to_original_units(), allow_nan=False))
    found = [score(exported, line) for line in lines]
    assert (
        [one is None for one in found]
        == (expected.labels == 0).tolist()
        == [False, True, *[False] * 3, True, False, False]
    )
    for one, margin_of in zip(found, expected.scores, strict=True):
        assert one is None or one[0] == pytest.approx(margin_of, abs=1e-6)


def test_rows_without_a_prediction_are_refused(table):
    with pytest.raises(DataError, match=r"have no prediction: in column '\w+' .* leave out rows that are not usable"):
        model().to_sklearn().predict(pa.csv.read_csv(table))
    with pytest.raises(ConfigurationError, match="choose 'refuse' or 'zeros'"):
        model().to_sklearn(unusable="majority")


def test_an_array_is_refused():
    with pytest.raises(ConfigurationError, match="no names of columns"):
        model().to_sklearn().predict(np.zeros((2, 8)))


def test_a_margin_of_zero_is_negative_in_both():
    estimator = model(np.zeros(SCHEMA.d)).to_sklearn(classes="signs")[-1]
    assert estimator.predict(np.ones((1, SCHEMA.d - 1))).tolist() == [-1]


def test_the_estimator_shares_no_memory_with_the_model():
    fitted = model()
    estimator = fitted.to_sklearn()[-1]
    estimator.coef_ += 1
    estimator.intercept_ += 1
    assert np.array_equal(fitted.theta, model().theta)
    # A clone is not fitted: training starts again.
    assert not hasattr(clone(estimator), "coef_")


def test_the_labels_own_texts():
    texts = model().to_sklearn()[-1].predict(np.eye(SCHEMA.d - 1))
    signs = model().to_sklearn(classes="signs")[-1].predict(np.eye(SCHEMA.d - 1))
    assert np.array_equal(texts == "sick", signs == 1)
    for label, names in (
        (Label(column="ill", positive=("sick",)), ["not sick", "sick"]),
        (Label(column="ill", positive=("sick", "dead"), negative=("well",)), ["well", "dead | sick"]),
    ):
        unclear = model(schema=replace(SCHEMA, label=label))
        assert unclear.to_sklearn().classes_.tolist() == names
    with pytest.raises(ConfigurationError, match="choose 'signs' or 'label'"):
        model().to_sklearn(classes="words")


def test_without_scikit_learn(monkeypatch):
    monkeypatch.delitem(sys.modules, "learner.frame_pipeline", raising=False)
    monkeypatch.setitem(sys.modules, "sklearn.linear_model", None)
    with pytest.raises(ConfigurationError, match=r"install radofed\[learner\]"):
        model().to_sklearn()


def test_the_command(tmp_path, capsys):
    saved, out = tmp_path / "model.json", tmp_path / "units.json"
    model().save(saved)
    assert run(["learner", "export", str(saved), "--output", str(out), "--format", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["data"]["features"] == 8
    assert json.loads(out.read_text()) == json.loads(json.dumps(model().to_original_units()))
    assert run(["learner", "export", str(saved), "--output", str(out)]) == 4
    assert "already exists" in capsys.readouterr().err
    other = tmp_path / "absent" / "units.json"
    assert run(["learner", "export", str(saved), "--output", str(other)]) == 4
    assert "choose another place" in capsys.readouterr().err
    assert run(["learner", "export", str(out), "--output", str(tmp_path / "again.json")]) == 4
    assert "not a model of radofed" in capsys.readouterr().err
    assert run(["learner", "export", str(saved), "--to", "sklearn", "--output", str(tmp_path / "x")]) == 4
    assert "a pickle, unsafe to load" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.json", "units.json"]
