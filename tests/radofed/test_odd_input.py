"""What a program may give the public API by mistake: each is refused by a sentence before anything is asked."""

from typing import Any

import numpy as np
import pytest

import radofed

pd = pytest.importorskip("pandas")

HEAD = 'schema_version = 5\nname = "stays"\nbias = true\ntexts = []\n'
AGE = '[[features]]\nname = "age"\ntype = "real"\nlower = 20\nupper = 95\nmissing = "refuse"\n'
ILL = '[label]\ncolumn = "ill"\npositive = ["yes"]\nnegative = ["no"]\nmissing = "refuse"\n'
DAYS = '[label]\ntype = "number"\ncolumn = "days"\nlower = 0\nupper = 60\nmissing = "refuse"\n'
VISITS = '[label]\ntype = "count"\ncolumn = "visits"\nupper = 9\nmissing = "refuse"\n'
WARD = '[label]\ntype = "classes"\ncolumn = "ward"\nvalues = ["a", "b"]\nmissing = "refuse"\n'


def rows(size: int = 120) -> Any:
    rng = np.random.default_rng(size)
    age = rng.uniform(20, 95, size)
    columns = {"days": age / 10, "visits": rng.integers(0, 9, size), "ward": rng.choice(["a", "b"], size)}
    ids = [f"{size}-{row // 2}" for row in range(size)]
    return pd.DataFrame({"age": age, "ill": np.where(age > 60, "yes", "no"), "id": ids, **columns})


def schema(label: str = ILL) -> radofed.Schema:
    return radofed.Schema.from_toml(HEAD + label + AGE)


def federation(label: str = ILL, **changed: Any) -> radofed.Federation:
    options = {"parties": {"north": rows(120), "south": rows(140)}, "schema": schema(label), **changed}
    return radofed.simulate_federation(options.pop("parties"), **options)


OF_PERSONS = {"unit": "person", "id_column": "id"}


def test_a_federation_says_what_is_odd():
    for changed, sentence in (
        ({"encrypt": "no"}, "encrypt is 'no': give True or False"),
        ({"schema": None}, "give the schema that the parties share"),
        ({"seed": "x"}, "seed is 'x': give an integer"),
        ({"parties": {"North": rows(), "south": rows()}}, "a party is called 'North': give it a name"),
        ({"parties": {1: rows(), "1": rows()}}, "a party is called 1: give it a name"),
        ({**OF_PERSONS, "id_column": "ill"}, "north: id_column 'ill' is a column of the schema"),
        ({**OF_PERSONS, "parties": {"north": rows(), "south": rows().assign(id="")}}, "south: .*without an id"),
        ({"parties": {"north": rows(), "south": rows().assign(age=["old", *[50.0] * 119])}},
         "south: column 'age' of a DataFrame .*row 1 is of the type str, and most are of the type float; give all"),
    ):  # fmt: skip
        with pytest.raises(radofed.RadofedError, match=sentence):
            federation(**changed)


def test_a_question_says_what_is_odd():
    asked = federation()
    for ask, sentence in (
        (lambda it: it.statistic({1: "y == 1"}, epsilon=1), "a statistic is called 1: give it a name"),
        (lambda it: it.statistic({" ": "y == 1"}, epsilon=1), "a statistic is called ' ': give it a name"),
        (lambda it: it.plan("statistic", {None: "y == 1"}, epsilon=1), "a statistic is called None"),
        (lambda it: it.crosstab("age", "ill", "age", epsilon=1), "crosstab: too many positional arguments; it"),
        (lambda it: it.statistic(["y == 1"], epsilon=1, local="no"), "local is 'no': give True or False"),
        (lambda it: it.describe([3], epsilon=1), "has no column 3; known: age, ill"),
        (lambda it: it.train(None, epsilon=1), "no estimator is called None; known: additive"),
        (lambda it: it.describe(epsilon="1e-3"), "the group of all rows would have 260 rows .*nothing was asked"),
    ):  # fmt: skip
        with pytest.raises(radofed.RadofedError, match=sentence):
            ask(asked)
    assert not asked.answers


def test_an_answer_that_tells_nothing_says_so():
    asked = federation()
    assert "Nothing is measured" in str(asked.statistic(["y == 1"], epsilon="1e-3"))
    assert "Nothing is measured" not in str(asked.statistic(["y == 1"], epsilon=1))


def test_terms_have_their_types():
    for terms, sentence in (
        ({**OF_PERSONS, "persons_may_repeat": 1.5}, "persons_may_repeat is 1.5: give an integer"),
        ({"cohort_min": "2"}, "cohort_min is '2': give an integer"),
    ):  # fmt: skip
        asked = federation(**terms)
        with pytest.raises(radofed.ConfigurationError, match=sentence):
            asked.plan("statistic", ["y == 1"], epsilon=1)


def test_what_a_terminal_shows_is_for_people():
    asked = federation()
    model = asked.train("newton", epsilon=20, rounds=2, hold_back=0.5)
    plans = [
        asked.plan("describe", epsilon=5),
        asked.plan("train", "newton", epsilon=5),
        asked.plan("statistic", ["y == 1"], epsilon=5),
    ]
    for shown in (*plans, model.evaluate(asked, epsilon=5), asked.privacy(), *model.coefficients()):
        assert repr(shown) == str(shown)
        assert "(query=" not in repr(shown)
        assert "array(" not in repr(shown)
        assert len(repr(shown)) < 4000
    (table,) = model.coefficients()
    assert "for each unit more" in repr(table)
    assert "<td>age</td>" in table._repr_html_()
    assert ".. " not in model._repr_html_()


def test_labels_without_probabilities_are_not_told_to_be_calibrated():
    model = federation(DAYS).train("newton", epsilon=20, rounds=3)
    with pytest.raises(radofed.ModelError, match=r"no probabilities of classes$"):
        model.predict_proba(rows())


def test_nothing_is_explained_of_a_label_that_is_the_same_in_all_rows():
    for label, changed in ((DAYS, {"days": 5.0}), (VISITS, {"visits": 2})):
        model = federation(label).train("newton", epsilon=20, rounds=3)
        assert model.errors(rows()).explained is not None
        found = model.errors(rows().assign(**changed))
        assert found.explained is None
        assert "is not defined" in found.sentence()


def test_a_model_of_several_classes_says_why_it_has_no_intervals():
    text = federation(WARD).train("newton", epsilon=20, rounds=2).summary()
    assert "The model's file states no errors of its weights." in text
    assert "give --release" not in text
