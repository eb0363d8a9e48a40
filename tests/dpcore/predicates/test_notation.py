"""Predicates as text and as Python: texts round-trip, mean the same in Python, and errors show the position."""

import math
import random
import string
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dpcore.predicates import frontend
from dpcore.predicates.evaluation import values
from dpcore.predicates.expressions import (
    MOST_DEPTH,
    Above,
    Affine,
    And,
    AtLeast,
    Clipped,
    Constant,
    Equals,
    Flag,
    LabelIs,
    NonNegative,
    Not,
    Or,
    Predicate,
    PredicateError,
    _Predicate,
)
from dpcore.predicates.frontend import as_predicate, clip, x, y, z
from dpcore.predicates.notation import MOST_TEXT, PredicateSyntaxError, described, parse, to_text
from tests.dpcore.predicates.predicate_cases import SCHEMA, atoms, predicates, random_records, trees

YES, NO = LabelIs(positive=True), LabelIs(positive=False)
OLD, ILL, COOK = AtLeast("age", Fraction(65)), Flag("ill"), Equals("job", "cook")
PYTHON = {name: getattr(frontend, name) for name in frontend.__all__}
RECORDS = random_records(70, 3)

names = st.text(min_size=1, max_size=6).filter(lambda text: text.isprintable() or text.isascii())
strange = trees(
    atoms
    | st.builds(Flag, names)
    | st.builds(Equals, names, names)
    | st.builds(AtLeast, names, st.fractions(max_denominator=1 << 62).filter(lambda c: abs(c.numerator) < 1 << 63))
    | st.builds(lambda name, weight: NonNegative(Affine(((name, weight),))), names, st.integers(-9, 9))
)


@given(strange)
def test_every_text_reads_back(predicate: Predicate):
    text = to_text(predicate)
    assert parse(text) == predicate
    assert to_text(parse(text)) == text


@given(predicates)
def test_every_text_is_python_that_means_the_same(predicate: Predicate):
    text = to_text(predicate)
    if any(not form.weights for form in forms_of(predicate)):
        return  # Python computes a form without coordinates by itself
    meant = as_predicate(eval(text, {"__builtins__": {}}, PYTHON))
    assert (values([meant], SCHEMA, RECORDS, 16) == values([predicate], SCHEMA, RECORDS, 16)).all()


class Novel(_Predicate):
    """A kind of predicate that the notation does not know."""


@pytest.mark.parametrize("wrap", [lambda part: part, Not, lambda part: And((ILL, part)), lambda part: Or((part, ILL))])
@pytest.mark.parametrize("write", [to_text, described])
def test_a_kind_of_predicate_without_notation_has_no_text(write, wrap):
    with pytest.raises(TypeError, match="Novel has no notation"):
        write(wrap(Novel()))


def forms_of(predicate: Predicate) -> list[Affine]:
    if isinstance(predicate, NonNegative | Clipped):
        return [predicate.form]
    return [form for part in predicate.children() for form in forms_of(part)]


@pytest.mark.parametrize(
    ("text", "predicate"),
    [
        ('x["age"] >= 65 & y == 1', OLD & YES),
        ('x["ill"] | x["age"] >= 65 & y == -1', ILL | (OLD & NO)),
        ('(x["ill"] | x["age"] >= 65) & y != 1', (ILL | OLD) & Not(YES)),
        ('x["ill"] & x["age"]>=65 & x["job"]=="cook"', And((ILL, OLD, COOK))),
        ('(x["ill"] & x["age"] >= 65) & y == 1', And((And((ILL, OLD)), YES))),
        ("true & ~false", Constant(value=True) & ~Constant(value=False)),
        ('~~x["ill"]', Not(Not(ILL))),
        ('x["ill"] == true', ILL),
        ('x["ill"] != true', Not(ILL)),
        ('x["ill"] == false', Not(ILL)),
        ('x["job"] != "cook"', Not(COOK)),
        ('"cook" == x["job"]', COOK),
        ('65 <= x["age"]', OLD),
        ('65 > x["age"]', Not(OLD)),
        ('x["age"] > 1/3', Above("age", Fraction(1, 3))),
        ('x["age"] <= -.5', Not(Above("age", Fraction(-1, 2)))),
        ('x["age"] < 6.5e1', Not(OLD)),
        ('x["a\\"\\u00e9\\n"]', Flag('a"é\n')),
        ('z["a"] >= 0', NonNegative(Affine((("a", 1),)))),
        ('-z["a"] + 2 * z["b"] - z["b"] * 3 + 4 - 5 >= 0', NonNegative(Affine((("a", -1), ("b", -1)), -1))),
        ('2 * z["a"] > 3', Not(NonNegative(Affine((("a", -2),), 3)))),
        ('2 * z["a"] <= z["b"]', NonNegative(Affine((("a", -2), ("b", 1))))),
        ('3 < 2 * z["a"]', Not(NonNegative(Affine((("a", -2),), 3)))),
        ('clip((z["a"] + 1) / 4)', Clipped(Affine((("a", 1),), 1), 4)),
        ('clip(-3 * z["a"] / 4)', Clipped(Affine((("a", -3),)), 4)),
        ('clip(z["a"] + 1)', Clipped(Affine((("a", 1),), 1), 1)),
        ("clip((5) / 16)", Clipped(Affine((), 5), 16)),
        ("-5 >= 0", NonNegative(Affine((), -5))),
    ],
)
def test_texts_give_the_expected_predicates(text: str, predicate: Predicate):
    assert parse(text) == predicate
    assert parse(f"  \t({text})\n") == predicate
    assert parse(to_text(predicate)) == predicate


@pytest.mark.parametrize(
    ("predicate", "text"),
    [
        (OLD & YES & ~ILL, '(x["age"] >= 65) & (y == 1) & ~x["ill"]'),
        (Not(OLD) | (ILL & COOK), '(x["age"] < 65) | (x["ill"] & (x["job"] == "cook"))'),
        (And((And((ILL, OLD)), YES)), '(x["ill"] & (x["age"] >= 65)) & (y == 1)'),
        (And((Not(ILL), YES)) | ILL, '(~x["ill"] & (y == 1)) | x["ill"]'),
        (Not(And((ILL, Not(Not(OLD))))), '~(x["ill"] & ~(x["age"] < 65))'),
        (Not(Above("age", Fraction(-1, 3))), 'x["age"] <= -1/3'),
        (AtLeast("age", Fraction(-1, 8)), 'x["age"] >= -0.125'),
        (AtLeast("age", Fraction(31, 100)), 'x["age"] >= 0.31'),
        (AtLeast("age", Fraction(1200)), 'x["age"] >= 1200'),
        (AtLeast("age", Fraction(1, 50)), 'x["age"] >= 0.02'),
        (AtLeast("age", Fraction(-7, 2)), 'x["age"] >= -3.5'),
        (Clipped(Affine((("b", -2), ("a", 3)), 5), 16), 'clip((3 * z["a"] - 2 * z["b"] + 5) / 16)'),
        (Not(NonNegative(Affine((("a", -1),), -4))), '-1 * z["a"] - 4 < 0'),
        (Flag("é😀\u007f"), 'x["é😀\u007f"]'),
        (NO, "y == -1"),
    ],
)
def test_how_predicates_are_written(predicate: Predicate, text: str):
    assert to_text(predicate) == text
    assert parse(text) == predicate


@pytest.mark.parametrize(
    ("text", "position", "sentence"),
    [
        ("", 0, "expected a number"),
        ('x["age"] >= ', 12, "expected a number"),
        ('x["age"] 3', 9, r"expected &, \| or the end of the text"),
        ('(x["ill"]', 9, r"expected \)"),
        ('x["ill"])', 8, r"expected &, \| or the end of the text"),
        ('x["ill" & true', 8, r"expected \]"),
        ("x['ill']", 2, r"not part of the notation"),
        ("x[ill]", 2, "expected a name or value in double quotation marks"),
        ('x["ill]', 2, "not a valid JSON string"),
        ('x[""]', 2, "give a non-empty text"),
        ('x["\\ud800"]', 2, "not valid Unicode"),
        ('~x["age"] >= 3', 10, "put the comparison that follows ~ in parentheses"),
        ('0 <= x["age"] <= 1', 14, "a second comparison: join two comparisons using &"),
        ('x["ill"] and x["old"]', 9, r"expected &, \| or the end of the text"),
        ('z["age"]', 8, "expected a comparison"),
        ('true & x["a"] == 3', 7, "== takes a category's value"),
        ('x["a"] >= "b"', 0, "compared with a finite number"),
        ('x["a"] >= x["b"]', 0, "compared with a finite number"),
        ("y == 0", 0, "y is compared with 1 or -1"),
        ("y == true", 0, "y is compared with 1 or -1"),
        ("1 == 1", 0, "forms are compared using"),
        ('"a" == "a"', 0, "bool is not a predicate"),
        ("true >= false", 0, "bool is not a predicate"),
        ('0.5 * z["a"] >= 0', 0, "is not an integer"),
        ('z["a"] == 0', 0, "forms are compared using"),
        ('4294967295 * z["a"] + 1 >= 0', 0, "2\\^32 or more"),
        ('clip(z["a"] + z["b"] / 4)', 21, r"expected \)"),
        ('clip(z["a"] / 0)', 0, "the scale is 0"),
        ("clip(5/16)", 5, "is not an integer"),
        ("clip(true)", 5, "expected a number"),
        ('x["a"] > 1/0', 11, "division by 0"),
        ('x["a"] > 1e-300', 0, "more than 63 bits"),
        ('x["a"] > 1e9999', 10, "or the end of the text"),
        ('x["a"] > ' + "9" * 200, 9, "not part of the notation"),
        ("(" * 100 + "true" + ")" * 100, 65, "nested more than 64 deep"),
        ("~" * 100 + "true", 65, "nested more than 64 deep"),
        ("~" * 40 + "true", 8, "deeper than 32 levels"),
        ('x["ill"] & ¬x["old"]', 11, "'¬' is not part of the notation"),
    ],
)
def test_errors_name_the_position_and_show_it(text: str, position: int, sentence: str):
    with pytest.raises(PredicateSyntaxError, match=sentence) as caught:
        parse(text)
    assert caught.value.position == position
    first, shown, caret = str(caught.value).split("\n")
    assert first.startswith(f"character {position + 1}: ")
    # The caret is below the character, if there is one.
    assert shown[caret.index("^") : caret.index("^") + 1] == text[position : position + 1]


def test_lengths_and_nesting_are_limited():
    clause = '(x["age"] >= 65)'
    many = " & ".join([clause] * (MOST_TEXT // (len(clause) + 3)))
    assert len(parse(many).children()) == MOST_TEXT // (len(clause) + 3)
    for text in (f"{many}{' ' * (MOST_TEXT - len(many) + 1)}", f'x["{"é" * (MOST_TEXT // 2)}"]'):
        with pytest.raises(PredicateError, match="longer than 65536 bytes"):
            parse(text)
    deepest: Predicate = ILL
    for level in range(MOST_DEPTH - 2):
        deepest = (Not(deepest), And((deepest, OLD)), Or((YES, deepest)))[level % 3]
    deepest = Not(deepest)
    assert deepest.depth == MOST_DEPTH
    assert parse(to_text(deepest)) == deepest
    assert parse("(" * 63 + 'x["ill"]' + ")" * 63) == ILL


def test_a_text_that_would_grow_without_end_is_refused_in_time():
    tower: Predicate = OLD
    for _ in range(MOST_DEPTH - 1):
        tower = And((tower, tower))
    with pytest.raises(PredicateError, match="longer than 65536 bytes"):
        to_text(tower)


def test_any_text_gives_a_predicate_or_an_error():
    generator = random.Random(4)
    pieces = ['x["age"]', 'z["a"]', "y", "clip", "(", ")", "&", "|", "~", ">=", "==", "1", "-", "*", "/", '"a"', "true"]
    read = 0
    for _ in range(10_000):
        text = " ".join(generator.choices(pieces, k=generator.randrange(1, 8)))
        try:
            read += to_text(parse(text)) != ""
        except PredicateError:
            continue
    assert read > 100
    for _ in range(500):
        with pytest.raises(PredicateError):
            parse("".join(generator.choices(string.punctuation + "xyz01 ", k=12)) + "$")


def test_python_gives_the_same_trees():
    assert (x["age"] >= 65) & (y == 1) == OLD & YES
    assert parse(to_text((x["age"] >= 65) & x["ill"] & (x["job"] == "cook"))) == And((OLD, ILL, COOK))
    assert ((x["age"] >= 65) | x["ill"]) == Or((OLD, ILL))
    assert x["ill"] & (OLD & YES) == And((ILL, OLD, YES))
    assert x["ill"] | x["ill"] == Or((ILL, ILL))
    assert ~x["ill"] == Not(ILL)
    assert OLD & x["ill"] == And((OLD, ILL))
    assert OLD | x["ill"] == Or((OLD, ILL))
    assert (x["job"] != "cook") == Not(COOK)
    assert (x["ill"] == False) == Not(ILL)  # noqa: E712
    assert (y != -1) == Not(NO)
    assert (65 <= x["age"]) == OLD  # noqa: SIM300
    assert as_predicate(x["ill"]) == ILL
    assert as_predicate(OLD) is OLD
    assert (2 * (z["a"] - z["b"]) - 3 <= 4 * z["c"]) == NonNegative(Affine((("a", -2), ("b", 2), ("c", 4)), 3))
    assert (1 - z["a"] < 0) == Not(NonNegative(Affine((("a", -1),), 1)))
    assert (z["a"] > np.int64(2)) == Not(NonNegative(Affine((("a", -1),), 2)))
    assert clip((3 * z["a"] + 5) / 16) == Clipped(Affine((("a", 3),), 5), 16)


@pytest.mark.parametrize(
    ("number", "bound"),
    [
        (0.1, Fraction(1, 10)),
        (np.float64(0.31), Fraction(31, 100)),
        (np.int32(7), Fraction(7)),
        (Fraction(1, 3), Fraction(1, 3)),
        (-2.5, Fraction(-5, 2)),
    ],
)
def test_doubles_are_read_as_they_are_written(number, bound):
    assert (x["age"] >= number) == AtLeast("age", bound)


@given(st.floats(min_value=1e-3, max_value=1e15) | st.floats(min_value=-1e15, max_value=-1e-3))
@example(0.0012345678901234567)
def test_every_ordinary_double_is_a_bound(number: float):
    above = x["age"] > number
    assert isinstance(above, Above)
    assert float(above.bound) == number
    assert parse(to_text(above)) == above


@pytest.mark.parametrize(
    "make",
    [
        lambda: x["age"] >= math.inf,
        lambda: x["age"] >= -math.inf,
        lambda: x["age"] >= Decimal("nan"),
        lambda: x["age"] >= 1e-300,
        lambda: x["age"] >= 1e300,
        lambda: x["age"] >= True,
        lambda: x["age"] == 65,
        lambda: x["age"] == x["pay"],
        lambda: 0 <= x["age"] <= 1,
        lambda: bool(x["ill"]),
        lambda: x[""],
        lambda: x[3],
        lambda: z[None],
        lambda: y == 2,
        lambda: y == True,  # noqa: E712
        lambda: 0.5 * z["a"],
        lambda: z["a"] / 2.5,
        lambda: z["a"] == 0,
        lambda: z["a"] != 0,
        lambda: clip(0.5),
        lambda: as_predicate(True),
        lambda: as_predicate(z["a"]),
        lambda: x["ill"] & True,
        lambda: x["ill"] & z["a"],
    ],
)
def test_invalid_python_expressions_are_refused(make):
    with pytest.raises(PredicateError):
        make()


def test_a_boolean_is_not_joined_to_a_predicate():
    with pytest.raises(TypeError):
        _ = OLD & True
    with pytest.raises(TypeError):
        _ = False | OLD


@pytest.mark.parametrize("text", ['label["deaths"].event', 'y["deaths"] == 1', '~(label["deaths"] >= 3)'])
def test_a_label_that_the_query_does_not_name_is_refused_with_the_option(text):
    with pytest.raises(PredicateSyntaxError, match="name it by --label deaths, or label='deaths' in Python"):
        parse(text)


def test_so_it_is_in_python_and_a_label_without_a_name_is_none():
    with pytest.raises(PredicateError, match="name it by --label deaths"):
        y["deaths"]
    with pytest.raises(PredicateSyntaxError, match="y is the label of the query"):
        parse("label == 1")
