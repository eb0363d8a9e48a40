"""Options of estimators by name: every estimator refuses values of a wrong type with a clear error."""

import inspect
from fractions import Fraction

import pytest

from dpcore.errors import ConfigurationError
from learner.estimators import BY_QUERIES, FROM_RELEASES, import_class, make_estimator
from radobase.options import named_option, named_options

NEEDED = {"point": {"feature": "ward"}, "threshold": {"feature": "age"}}
EVERY = [
    (name, option)
    for name, place in {**BY_QUERIES, **FROM_RELEASES}.items()
    for option in inspect.signature(import_class(*place)).parameters
    if option not in ("n_rados", "random_state")
]


def make(name: str, **options):
    return make_estimator(name, **{**NEEDED.get(name, {}), **options})


LISTS = {("additive", "increasing"), ("additive", "decreasing"), ("additive", "pairs")}


@pytest.mark.parametrize("value", [["a", "list"], {"a": "table"}])
def test_every_option_refuses_a_wrong_type(value):
    for name, option in EVERY:
        # Weights by class are a mapping; their classes are compared with the label later.
        if (isinstance(value, list) and (name, option) in LISTS) or (
            option == "class_weight" and value == {"a": "table"}
        ):
            assert getattr(make(name, **{option: value}), option) == value
            continue
        with pytest.raises(ConfigurationError, match=f"option {option} is"):
            make(name, **{option: value})


def test_a_default_has_its_options_type():
    for name, option in EVERY:
        default = inspect.signature(import_class(*{**BY_QUERIES, **FROM_RELEASES}[name])).parameters[option].default
        if default is not inspect.Parameter.empty:
            assert getattr(make(name, **{option: default}), option) == default, (name, option)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("newton", "clip=1", 1.0),
        ("newton", "norm_bound=2.5", Fraction(5, 2)),
        ("newton", "norm_bound=7/3", Fraction(7, 3)),
        ("newton", "norm_bound=null", None),
        ("newton", "clip=null", None),
        ("conjunction", "require_rows=False", False),
        ("conjunction", "require-rows=false", False),
        ("conjunction", "part=0.5", Fraction(1, 2)),
        ("threshold", "direction=below", "below"),
        ("logistic-gd", "learning_rate=None", None),
        ("additive", "increasing=1", "1"),
        ("additive", "increasing=2.5", "2.5"),
        ("additive", 'increasing=["1", "age, years"]', ["1", "age, years"]),
        ("additive", "pairs=true", True),
        ("additive", 'pairs=[["a*b", "c"]]', [["a*b", "c"]]),
        ("point", "feature=1", "1"),
    ],
)
def test_values_are_read_as_their_types(name, text, value):
    option, given = named_option(text)
    found = getattr(make(name, **{option: given}), option)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("newton", "clip=abc"),
        ("newton", "clip=[1]"),
        ("additive", "increasing=true"),
        ("additive", "increasing=NaN"),
        ("newton", "rounds=2.5"),
        ("newton", "rounds=true"),
        ("newton", "norm_bound=1/0"),
        ("conjunction", "indicators=x"),
        ("conjunction", "require_rows=1"),
        ("point", "empty=x"),
        ("logistic-gd", "clip=none"),
        ("naive-bayes", "smoothing=abc"),
    ],
)
def test_other_types_are_refused(name, text):
    option, given = named_option(text)
    with pytest.raises(ConfigurationError, match=f"option {option} is"):
        make(name, **{option: given})


@pytest.mark.parametrize("name", NEEDED)
def test_an_option_without_a_default_must_be_given(name):
    with pytest.raises(ConfigurationError, match="needs the option feature"):
        make_estimator(name)


def test_an_option_that_is_given_twice_is_refused():
    assert named_options(["increasing=age,dose", "min-rows=3"]) == {"increasing": "age,dose", "min_rows": 3}
    for twice in (["increasing=smoker", "increasing=age"], ["moments-part=0.2", "rounds=4", "moments_part=0.3"]):
        with pytest.raises(ConfigurationError, match="is given twice: give it once"):
            named_options(twice)
