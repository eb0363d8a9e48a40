import json
import math
from dataclasses import replace
from fractions import Fraction

import pytest

from dpcore.errors import ConfigurationError, PlanError
from dpcore.privacy.dp_feat import account
from dpcore.privacy.statement import MASKS, PrivacyStatement, _up, statement_for, without_bound
from dpcore.rados.designs import DpFeatDesign, PlainDesign

DESIGN = DpFeatDesign(3, "pixel_36_dark", Fraction(1, 2))
ROWS = (4000, 5000, 3000)


def dp_feat_statement() -> PrivacyStatement:
    return statement_for(DESIGN, ROWS, 20, Fraction(1, 10**6))


def test_figures_are_the_counted_ones():
    statement, counted = dp_feat_statement(), account(ROWS, 20, Fraction(1, 2), 1e-6)
    assert statement.scope == "marginal"
    assert statement.unit == "one record's value of 'pixel_36_dark'"
    assert statement.epsilon == counted.epsilon
    assert statement.epsilon_if_others_collude == counted.epsilon_if_others_collude
    assert statement.theorem_epsilon == 10.0
    assert statement.delta == 1e-6


def test_words_say_what_is_not_covered():
    text = " ".join(dp_feat_statement().sentences())
    for phrase in (
        "whoever knows a record's other columns can read the value",
        "No record is protected as a whole",
        "one row",
        "uniformly random to whoever lacks the mask keys",
        "independent component analysis",
        "encryption alone",
        "Theorem 6",
    ):
        assert phrase in text


def test_plain_claims_nothing():
    statement = statement_for(PlainDesign(), ROWS, 20, None)
    assert statement.scope == "none"
    assert statement.epsilon is statement.delta is statement.epsilon_if_others_collude is None
    assert "No differential privacy is claimed" in statement.sentences()[0]
    assert any("independent component analysis" in warning for warning in statement.warnings)


def test_without_truncation_the_theorem_is_not_quoted():
    statement = statement_for(replace(DESIGN, epsilon_per_rado=None), ROWS, 20, 1e-6)
    assert statement.theorem_epsilon is None
    assert "Theorem 6" not in " ".join(statement.sentences())


def test_a_lone_party_is_told_so():
    statement = statement_for(DESIGN, (4000,), 20, 1e-6)
    assert "one party" in statement.assumptions[0]
    assert MASKS not in statement.assumptions


def test_the_learners_figure_rests_on_the_masks():
    for statement in (dp_feat_statement(), without_bound(PlainDesign())):
        assert MASKS in statement.assumptions
        assert "uniformly random" in " ".join(statement.sentences())


def test_a_release_without_a_bound_says_why():
    statement = without_bound(DESIGN, "A party has one row.")
    assert (statement.scope, statement.epsilon, statement.delta) == ("none", None, None)
    assert statement.warnings[0] == "A party has one row."
    assert "No differential privacy is claimed" in statement.sentences()[0]
    assert "'pixel_36_dark'" in statement.sentences()[0]
    assert without_bound(PlainDesign()) == statement_for(PlainDesign(), ROWS, 20, None)


@pytest.mark.parametrize("statement", [dp_feat_statement(), statement_for(PlainDesign(), ROWS, 20, None)])
def test_json_round_trip(statement):
    assert PrivacyStatement.from_dict(json.loads(json.dumps(statement.to_dict()))) == statement


def test_printed_figures_are_rounded_up():
    for figure in (0.0, 1e-7, 0.12345678, 1.0, 1.33588, 9.99951, 12.306, 149.99999):
        printed = float(_up(figure))
        assert printed >= figure
        assert printed <= figure * 1.001 + 1e-300
    assert _up(1.2340001) == "1.235"
    assert _up(0.5) == "0.5000"


def test_delta_is_printed_in_full():
    statement = replace(dp_feat_statement(), delta=1.2345678e-6)
    assert "1.2345678e-06" in statement.sentences()[0]


@pytest.mark.parametrize(
    "change",
    [
        {"scope": "record"},
        {"scope": "none"},
        {"epsilon": None},
        {"delta": None},
        {"epsilon_if_others_collude": None},
        {"epsilon": math.inf},
        {"epsilon": -1.0},
        {"delta": 0.0},
        {"delta": 1.0},
        {"theorem_epsilon": math.nan},
    ],
)
def test_statements_that_contradict_themselves_are_refused(change):
    with pytest.raises(ConfigurationError):
        replace(dp_feat_statement(), **change)


@pytest.mark.parametrize(
    "change",
    [{"unit": 3}, {"epsilon": "1"}, {"epsilon": True}, {"warnings": "none"}, {"assumptions": [1]}, {"more": 1}],
)
def test_malformed_dictionaries_are_refused(change):
    with pytest.raises(ConfigurationError):
        PrivacyStatement.from_dict(dp_feat_statement().to_dict() | change)


def test_a_missing_field_is_named():
    fields = dp_feat_statement().to_dict()
    del fields["epsilon"]
    with pytest.raises(ConfigurationError, match="epsilon"):
        PrivacyStatement.from_dict(fields)


def test_dp_feat_needs_a_delta():
    with pytest.raises(PlanError, match="delta"):
        statement_for(DESIGN, ROWS, 20, None)
