import json
import math
from dataclasses import replace
from fractions import Fraction

import pytest

from dpcore.accounting.protection import Setting
from dpcore.accounting.words import ROW_NOT_PERSON
from dpcore.errors import ConfigurationError, PlanError
from dpcore.numbers.rationals import rounded_up
from dpcore.queries.moments import MomentsQuery
from dpcore.queries.rados import RADOS_LEAK, RadosQuery
from dpcore.queries.statement import (
    COORDINATOR,
    MASKS,
    NO_RECORD,
    PrivacyStatement,
    statement_for,
    without_bound,
)
from dpcore.rados.designs import (
    FixedSupportDesign,
    GaussianDesign,
    PlainDesign,
    dp_feat_design,
    joint_design,
    plain_design,
)
from dpcore.records.clipping import Clip
from dpcore.records.schema import BooleanFeature, CategoryFeature, Label, RealFeature, Schema

SCHEMA = Schema(
    name="stays",
    label=Label(column="stayed", positive=("yes",)),
    features=(
        RealFeature(name="age", lower=0, upper=100),
        CategoryFeature(name="ward", values=("a", "b")),
        BooleanFeature(name="pixel_36_dark", true=("y",), false=("n",)),
        BooleanFeature(name="smoker", true=("y",), false=("n",)),
    ),
)
ROWS, DELTA = (4000, 5000, 3000), Fraction(1, 10**6)
SETTING = Setting(d=6, fraction_bits=10, honest_parties=2)
CLIP = Clip(Fraction(3, 2), bias=True)
PLAIN = RadosQuery(20, PlainDesign())
BOOLEANS = RadosQuery(20, plain_design(SCHEMA))
DP_FEAT = RadosQuery(20, dp_feat_design(SCHEMA, ["pixel_36_dark"], Fraction(1, 2)))
SEVERAL = RadosQuery(20, dp_feat_design(SCHEMA, ["smoker", "age"], rounded=["age"]))
JOINT = RadosQuery(20, joint_design(SCHEMA, "ward", 8000))
GAUSSIAN = RadosQuery(20, GaussianDesign(CLIP, 20_000))
FIXED = RadosQuery(20, FixedSupportDesign(Fraction(1, 4), CLIP, 6000))
UNNOISED = RadosQuery(20, FixedSupportDesign(Fraction(1, 4), CLIP, 0))
MOMENTS = MomentsQuery(CLIP, 1000, 60_000_000)
KINDS = {
    "plain": PLAIN,
    "booleans": BOOLEANS,
    "dp-feat": DP_FEAT,
    "several": SEVERAL,
    "joint": JOINT,
    "gaussian": GAUSSIAN,
    "fixed": FIXED,
    "unnoised": UNNOISED,
    "moments": MOMENTS,
}


def state(kind, rows=ROWS, delta=DELTA, setting=SETTING) -> PrivacyStatement:
    return statement_for(kind, rows, delta, schema=SCHEMA, setting=setting)


def words(statement: PrivacyStatement) -> str:
    return " ".join(statement.sentences())


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_figures_are_the_counted_ones(kind):
    statement, cost = state(kind), kind.protection(SETTING).cost(ROWS, DELTA)
    assert statement.scope == kind.scope
    if cost is None:
        assert statement.epsilon is statement.delta is statement.epsilon_if_others_collude is None
        return
    assert (statement.epsilon, statement.delta) == (cost.epsilon, 1e-6)
    assert statement.epsilon_if_others_collude == cost.epsilon_if_others_collude
    assert statement.theorem_epsilon == cost.theorem_epsilon == (10.0 if kind is DP_FEAT else None)
    first, second = statement.sentences()[:2]
    assert f"({rounded_up(cost.epsilon)}, 1e-06)-differentially private for {statement.unit}" in first
    assert f"at most {rounded_up(cost.epsilon_if_others_collude)} at the same delta" in second
    assert ("Theorem 6" in words(statement)) == (kind is DP_FEAT)


@pytest.mark.parametrize(
    ("kind", "unit", "within"),
    [
        (BOOLEANS, "one record's value of any one of 'pixel_36_dark', 'smoker'", "that coordinate's own values"),
        (DP_FEAT, "one record's value of 'pixel_36_dark'", "that coordinate's own values"),
        (SEVERAL, "one record's value of any one of 'age', 'smoker'", "that coordinate's own values"),
        (JOINT, "one record's value in the column 'ward'", "the whole release"),
        (GAUSSIAN, "one record", "the whole release"),
        (FIXED, "one record", "the whole release"),
        (MOMENTS, "one record", "the whole release"),
    ],
)
def test_unit_and_scope_are_said(kind, unit, within):
    statement = state(kind)
    assert statement.unit == unit
    assert f"private for {unit}, within {within}." in statement.sentences()[0]
    assert ROW_NOT_PERSON in statement.assumptions
    assert COORDINATOR in statement.assumptions
    assert "encryption alone" in words(statement)


@pytest.mark.parametrize("kind", [BOOLEANS, DP_FEAT, SEVERAL])
def test_a_marginal_says_what_is_not_covered(kind):
    statement = state(kind)
    assert "anyone who knows a record's other columns can read the value" in words(statement)
    assert {NO_RECORD, RADOS_LEAK} <= set(statement.warnings)
    assert "labels, all other columns and row counts stay as they are" in words(statement)
    several = len(statement.unit.split("', '")) > 1
    assert (" each on its own;" in words(statement)) == several
    assert (" on their own;" in words(statement)) == (not several)
    assert "If the learner, the coordinator and all other parties collude" in statement.sentences()[1]


def test_joint_covers_its_column_and_says_what_it_does_not():
    statement = state(JOINT)
    assert {NO_RECORD, RADOS_LEAK} == set(statement.warnings)
    assert "differ in the cell of 'ward' in one record, both being cells that the schema takes" in words(statement)
    assert "can read the value" not in words(statement)


@pytest.mark.parametrize("kind", [GAUSSIAN, FIXED, MOMENTS])
def test_record_level_releases_warn_of_nothing_that_is_bounded(kind):
    statement = state(kind)
    assert statement.warnings == ()
    assert "replaced by any other record that the schema takes; row counts are public" in words(statement)


@pytest.mark.parametrize("kind", [BOOLEANS, DP_FEAT, JOINT, GAUSSIAN, FIXED, MOMENTS])
def test_a_delta_that_is_large_for_so_many_records_is_called_so(kind):
    rows = sum(ROWS)
    large, small = (state(kind, delta=Fraction(1, rows + change)) for change in (0, 1))
    warnings = [text for text in large.warnings if "allows some of them to be disclosed" in text]
    assert len(warnings) == 1
    assert f"With {rows} records" in warnings[0]
    assert warnings[0].endswith("well below 8e-05.")
    assert "disclosed:" not in words(small)


@pytest.mark.parametrize("kind", [JOINT, GAUSSIAN, MOMENTS])
@pytest.mark.parametrize(("honest", "counted"), [(1, 1), (2, 2), (3, 3), (9, 3)])
def test_shares_that_are_counted_are_said(kind, honest, counted):
    text = words(state(kind, setting=replace(SETTING, honest_parties=honest)))
    assert "one from each of the 3 parties" in text
    assert f"counts {counted}, the record's own party among them: all parties but {counted} may collude" in text
    assert "If other parties collude with the learner and the coordinator, as many as stated below" in text


def test_fixed_support_says_that_its_noise_is_paid_once():
    statement = state(FIXED)
    assert statement.epsilon == statement.epsilon_if_others_collude
    assert "All releases over the same noised tables cost this once in total" in words(statement)
    assert "the two figures are the same, and all parties except the record's own may collude" in words(statement)
    assert "shares" not in words(statement)


@pytest.mark.parametrize("kind", [PLAIN, UNNOISED])
def test_a_kind_without_a_bound_claims_nothing(kind):
    statement = state(kind, delta=None)
    assert statement.scope == "none"
    assert "No differential privacy is claimed" in statement.sentences()[0]
    assert any("independent component analysis" in warning for warning in statement.warnings)
    assert statement == without_bound(kind, SCHEMA)


@pytest.mark.parametrize("kind", [DP_FEAT, JOINT, GAUSSIAN, FIXED, MOMENTS])
def test_a_large_epsilon_is_called_one(kind):
    modest = state(kind)
    assert modest.epsilon < 10
    assert not any("bounds little" in warning for warning in modest.warnings)
    weak = {
        DP_FEAT: RadosQuery(300, dp_feat_design(SCHEMA, ["smoker"])),
        JOINT: RadosQuery(20, joint_design(SCHEMA, "ward", 400)),
        GAUSSIAN: RadosQuery(20, GaussianDesign(CLIP, 1000)),
        FIXED: RadosQuery(20, FixedSupportDesign(Fraction(1, 4), CLIP, 1000)),
        MOMENTS: replace(MOMENTS, share_sigma=4_000_000),
    }[kind]
    statement = state(weak, (100, 150, 100) if kind is DP_FEAT else ROWS)
    assert 10 < statement.epsilon < 150
    assert f"An epsilon of {rounded_up(statement.epsilon)} bounds little" in statement.warnings[0]
    assert statement.warnings[1:] == modest.warnings or kind is DP_FEAT


def test_a_single_party_is_stated():
    statement = state(DP_FEAT, (4000,))
    assert "one party" in statement.assumptions[0]
    for kind in (DP_FEAT, GAUSSIAN, MOMENTS):
        assert MASKS not in state(kind, (4000,)).assumptions


def test_the_learners_figure_rests_on_the_masks():
    for statement in (*map(state, KINDS.values()), without_bound(PLAIN, SCHEMA)):
        assert MASKS in statement.assumptions
        assert "uniformly random" in words(statement)


@pytest.mark.parametrize(
    ("kind", "unit"),
    [
        (DP_FEAT, "one record's value of 'pixel_36_dark'"),
        (JOINT, "one record's value in the column 'ward'"),
        (MOMENTS, "one record"),
        (BOOLEANS, "one record"),
    ],
)
def test_a_release_without_a_bound_says_why(kind, unit):
    statement = without_bound(kind, SCHEMA, "A party has one row.")
    assert (statement.scope, statement.epsilon, statement.delta) == ("none", None, None)
    assert statement.warnings[0] == "A party has one row."
    assert f"nothing bounds what this release reveals about {unit}." in statement.sentences()[0]
    # The warnings about rados do not apply to moments.
    assert (RADOS_LEAK in statement.warnings) == (kind is not MOMENTS)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_json_round_trip(kind):
    statement = state(kind)
    assert PrivacyStatement.from_dict(json.loads(json.dumps(statement.to_dict()))) == statement


def test_printed_figures_are_rounded_up():
    for figure in (0.0, 1e-7, 0.12345678, 1.0, 1.33588, 9.99951, 12.306, 149.99999):
        printed = float(rounded_up(figure))
        assert printed >= figure
        assert printed <= figure * 1.001 + 1e-300
    assert rounded_up(1.2340001) == "1.235"
    assert rounded_up(0.5) == "0.5000"


def test_delta_is_printed_in_full():
    statement = replace(state(DP_FEAT), delta=1.2345678e-6)
    assert "1.2345678e-06" in statement.sentences()[0]


@pytest.mark.parametrize(
    "change",
    [
        {"scope": "total"},
        {"scope": "none"},
        {"epsilon": None},
        {"delta": None},
        {"epsilon_if_others_collude": None},
        {"epsilon": math.inf},
        {"epsilon": -1.0},
        {"delta": -1e-9},
        {"delta": 1.0},
        {"theorem_epsilon": math.nan},
    ],
)
def test_statements_that_contradict_themselves_are_refused(change):
    with pytest.raises(ConfigurationError):
        replace(state(DP_FEAT), **change)


@pytest.mark.parametrize(
    "change",
    [{"unit": 3}, {"epsilon": "1"}, {"epsilon": True}, {"warnings": "none"}, {"assumptions": [1]}, {"more": 1}],
)
def test_malformed_dictionaries_are_refused(change):
    with pytest.raises(ConfigurationError):
        PrivacyStatement.from_dict(state(DP_FEAT).to_dict() | change)


def test_a_missing_field_is_named():
    fields = state(DP_FEAT).to_dict()
    del fields["epsilon"]
    with pytest.raises(ConfigurationError, match="epsilon"):
        PrivacyStatement.from_dict(fields)


@pytest.mark.parametrize("kind", [BOOLEANS, DP_FEAT, JOINT, GAUSSIAN, FIXED, MOMENTS])
def test_what_is_bounded_needs_a_delta(kind):
    with pytest.raises(PlanError, match="delta"):
        state(kind, delta=None)


def test_short_sentences_keep_the_bound_and_the_warnings():
    made = PrivacyStatement("one record", "record", 1.0, 1e-6, 2.0, None, ("A.", "B."), ("Careful.",))
    whole, short = made.sentences(), made.short_sentences()
    assert [line for line in whole if line not in short] == ["Assumed: A.", "Assumed: B."]
    (pointer,) = [line for line in short if line not in whole]
    assert pointer.startswith("It holds under 2 assumptions: `rado plan` states them")
    assert replace(made, assumptions=()).short_sentences() == replace(made, assumptions=()).sentences()
