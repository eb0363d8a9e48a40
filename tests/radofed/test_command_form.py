"""A command's options as a form: every option is a field, and fields are read as the command line is."""

from fractions import Fraction

import pytest

from dpcore.errors import ConfigurationError
from learner.request_fields import QueryOptions
from radofed.console.forms import Form
from radofed.planning.fields import PlanOptions


@pytest.fixture(scope="module")
def plan_form():
    return Form(PlanOptions)


def test_fields_are_the_options(plan_form):
    fields = {field.name: field for field in plan_form.fields}
    assert fields["party_rows"].flag == "--party-rows"
    assert fields["delta"].default == "1e-6"
    assert fields["joint"].is_flag
    assert not fields["epsilon"].is_flag
    assert fields["statistic"].is_list
    assert not fields["rows"].is_list
    assert all(field.help for field in fields.values())
    assert {"schema", "config", "quorum_wait_s"} <= {field.name for field in Form(QueryOptions).fields}


def test_texts_are_read_as_by_the_command(plan_form):
    given = plan_form.parse(
        {
            "rows": " 7 ",
            "joint": "on",
            "statistic": "y == 1\n\n ~true ",
            "epsilon": "1/3",
            "design": "",
            "tolerance": "0.5",
        }
    )
    assert (given.rows, given.joint, given.epsilon, given.tolerance) == (7, True, Fraction(1, 3), 0.5)
    assert given.statistic == ("y == 1", "~true")
    assert given.design is None
    assert given.delta == Fraction(1, 10**6)


def test_what_begins_with_a_dash_is_no_option(plan_form):
    given = plan_form.parse({"design": "--joint", "statistic": "--rows=9"})
    assert (given.design, given.joint, given.rows) == ("--joint", False, None)


@pytest.mark.parametrize(("name", "text"), [("rows", "seven"), ("rows", "1.5"), ("tolerance", "x")])
def test_a_wrong_text_is_the_command_s_sentence(plan_form, name, text):
    with pytest.raises(ConfigurationError, match=f"Invalid value for '--{name}'"):
        plan_form.parse({name: text})
