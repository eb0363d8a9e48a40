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
        ({"encrypt": None}, "encrypt is None: give a value, or leave encrypt out"),
        ({"key_bits": None}, "key_bits is None: give a value"),
        ({"seed": None}, "seed is None: give a value"),
        ({"schema": None}, "give the schema that the parties share"),
        ({"schema": HEAD + ILL + AGE}, r"the schema is a text of several lines: give Schema\.from_toml"),
        ({"parties": {"north": rows(), "south": rows()["age"]}}, "south: data is a Series, one column: give a frame"),
        ({"parties": {"north": rows(), "south": rows().set_index("ill")}},
         r"south: .*column 'ill': it is the frame's index, which is not read: give frame\.reset_index\(\)"),
        ({"parties": {"north": rows(), "south": rows().assign(age=pd.arrays.SparseArray([50.0] * 120))}},
         "south: column 'age' of a DataFrame is sparse: make it dense"),
        ({"parties": {"north": rows(), "south": rows().assign(age=pd.period_range("2024-01-01", periods=120))}},
         "south: .*column 'age': the column is of periods; make them dates"),
        ({"parties": {"north": rows(), "south": rows().iloc[:0]}}, "south: .*no rows; give a table with at least one"),
        ({"parties": {"north": rows(), "south": pd.concat([rows(), rows()[["ill"]]], axis=1)}},
         "south: .*columns 2 and 7 have the same header"),
        ({"parties": {"north": rows(), "south": rows().drop(columns="ill")}}, "south: .*'ill': there is no such"),
        ({"parties": {"north": rows(), "south": rows().assign(ill=np.nan)}}, "south: .*'ill': there is no label"),
        ({"parties": {"north": rows(), "south": rows().assign(ill=True)}}, "south: .*in neither positive nor negative"),
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


def test_one_table_says_what_is_odd():
    for given, sentence in (
        ({"parties": None}, "parties is None: give a value"),
        ({"partition": None}, "partition is None: give a text"),
        ({"target": ["classes"]}, r"target is \['classes'\]: give a text"),
        ({"target": "event", "event": ["id"]}, r"event is \['id'\]: give a text"),
        ({"target": "count", "exposure": 1}, 'exposure is 1: give a text, such as "1"'),
        ({**OF_PERSONS, "id_column": ["id"]}, r"id_column is \['id'\]: give a text"),
        ({"schema": {}}, "the schema is a dict: give one"),
        ({"schema": HEAD + ILL + AGE}, r"the schema is a text of several lines: give Schema\.from_toml"),
        ({"positive": True}, 'a positive value is True: give a text, such as "true"'),
        ({"label": "illness"}, "there is no such column"),
    ):
        with pytest.raises(radofed.RadofedError, match=sentence):
            radofed.simulated_federation(rows(), **{"label": "ill", "positive": "yes", "parties": 2, **given})


def test_frames_have_the_types_of_pandas():
    """Columns that are categorical, nullable, truths and dates count as their texts do in a file."""
    plain = rows(400).assign(smoker=np.arange(400) % 4 == 0, day="2024-03-01", old=lambda it: it["age"] > 60)
    typed = plain.assign(
        ill=plain["ill"].astype("category"),
        ward=pd.Categorical(plain["ward"], ["a", "b", "never"]),
        visits=plain["visits"].astype("Int64"),
        smoker=plain["smoker"].astype("boolean"),
        day=pd.to_datetime(plain["day"]),
        old=plain["old"].astype(object),
    )
    features = "".join(
        f'[[features]]\nname = "{name}"\n{more}\n'
        for name, more in {
            "visits": 'type = "real"\nlower = 0\nupper = 9',
            "ward": 'type = "category"\nvalues = ["a", "b"]',
            "smoker": 'type = "boolean"\ntrue = ["true"]\nfalse = ["false"]',
            "old": 'type = "boolean"\ntrue = ["true"]\nfalse = ["false"]',
            "day": 'type = "date"\nfirst = "2024-01-01"\nlast = "2024-12-31"',
        }.items()
    )
    shared = radofed.Schema.from_toml(HEAD + ILL + features)
    asked = ['x["visits"] >= 5', 'x["ward"] == "a"', 'x["smoker"]', 'x["old"]', 'x["day"] < "2024-04-01"', "y == 1"]
    found = [
        radofed.simulate_federation({"north": each, "south": each}, schema=shared, seed=3).statistic(asked, epsilon=10)
        for each in (plain, typed)
    ]
    assert found[0].values.tolist() == found[1].values.tolist()
    true = [(plain["visits"] >= 5).mean(), (plain["ward"] == "a").mean(), 0.25, plain["old"].mean(), 1, None]
    true[-1] = (plain["ill"] == "yes").mean()
    assert found[0].values == pytest.approx(true, abs=0.02)


def test_a_warning_names_the_column_whose_cells_are_empty():
    """Of a label with two columns it named the first one, whatever was empty."""
    times = rows(100).assign(died=lambda it: np.where(it.index < 60, "yes", None))
    with pytest.warns(UserWarning, match=r"in columns 'days' or 'died' 40 of 100 cells are empty"):
        radofed.simulated_federation(
            times[["days", "died", "age"]], label="days", target="event", event="died", positive="yes", parties=2
        )
    event = 'type = "event"\ncolumn = "days"\nevent = "died"\nhappened = ["yes"]\ncensored = ["no"]\nborders = [5, 9]\n'
    shared = radofed.Schema.from_toml(f'{HEAD}[label]\n{event}missing = "refuse"\nunlisted = "zero-vector"\n{AGE}')
    odd = rows(100).assign(died=lambda it: np.where(it.index < 60, "yes", "moved"))
    with pytest.warns(UserWarning, match=r"in column 'died' 40 of 100 cells are in neither happened nor censored"):
        radofed.simulate_federation({"north": odd, "south": odd.assign(died="no")}, schema=shared)


def test_a_connection_says_what_is_odd(tmp_path):
    for config, sentence in (
        (None, "config is None: give the path of learner.toml"),
        (3, "config is 3: give the path"),
        ({}, "config is {}: give the path"),
        (tmp_path, "is a directory; correct the file"),
        (tmp_path / "learner.toml", "cannot be read"),
    ):
        with pytest.raises(radofed.ConfigurationError, match=sentence):
            radofed.connect(config)
    with pytest.raises(radofed.ConfigurationError, match="ask_again and reuse exclude one another"):
        radofed.connect("learner.toml", ask_again=True, reuse=True)
    with pytest.raises(radofed.ConfigurationError, match="no option 'purposes'; did you mean 'purpose'"):
        radofed.connect("learner.toml", purposes="x")


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
