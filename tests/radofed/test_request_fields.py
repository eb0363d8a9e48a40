"""One declaration: commands, the console's forms, Python and the documents have the same defaults and bounds."""

import ast
import inspect
import re
from fractions import Fraction
from pathlib import Path

import pytest
import typer

import radofed
from dpcore.declared import declaration, declarations
from dpcore.errors import ConfigurationError
from dpcore.paillier import public
from learner.requests import MomentsRequest, RadosRequest, release_request
from parties.policy import Policy, PolicyLimits
from radobase.options import from_texts
from radofed.cli.commands import app
from radofed.cli.learner.histograms import HistogramOptions, QuantileOptions
from radofed.cli.learner.models import EvaluateOptions, StatisticOptions
from radofed.cli.learner.selection import SelectOptions
from radofed.console.pages import Form
from radofed.demo.options import DemoCommandOptions
from radofed.inquiry_options import CompareOptions, CorrelateOptions, CrosstabOptions, DescribeOptions
from radofed.planning.asked_queries import AskRequest
from radofed.planning.design_cost import PlanRequest
from radofed.planning.plan_options import PlanOptions
from radofed.simulation.designs import DesignOptions
from radofed.simulation.run import SimulationOptions
from radofed.simulation.simulate_options import SimulateOptions, SimulationFields
from tests.federation.learner import SCHEMA
from wire.design_options import USUAL_DESIGN
from wire.request_fields import (
    KEY_BITS,
    LEAST_KEY_BITS,
    MOST_KEY_BITS,
    QueryOptions,
    QueryTerms,
    ReleaseFields,
    TrainOptions,
)

ROOT = Path(__file__).parents[2]
COMMANDS = {
    "learner query": QueryOptions,
    "learner train": TrainOptions,
    "learner evaluate": EvaluateOptions,
    "learner statistic": StatisticOptions,
    "learner histogram": HistogramOptions,
    "learner quantiles": QuantileOptions,
    "learner describe": DescribeOptions,
    "learner crosstab": CrosstabOptions,
    "learner compare": CompareOptions,
    "learner correlate": CorrelateOptions,
    "learner select": SelectOptions,
    "plan": PlanOptions,
    "simulate": SimulateOptions,
    "demo": DemoCommandOptions,
}
every_command = pytest.mark.parametrize(("words", "options"), COMMANDS.items(), ids=COMMANDS)


def command(words):
    found = typer.main.get_command(app)
    for word in words.split():
        found = found.commands[word]
    return found


@every_command
def test_a_command_and_its_page_have_the_declared_defaults_and_bounds(words, options):
    reference = (ROOT / "docs/reference/commands.md").read_text().split(f" rado {words}\n")[1].split("\n##")[0]
    parameters = {parameter.name: parameter for parameter in command(words).params}
    assert set(parameters) - {"output_format", "debug", "help"} == {field.name for field in declarations(options)}
    rows = [line for line in reference.splitlines() if line.startswith("| `-")]
    for field in declarations(options):
        parameter = parameters[field.name]
        assert parameter.help == field.sentence
        assert parameter.required == field.is_required
        if field.option.argument:
            continue
        assert field.flag in parameter.opts
        assert str(parameter.default or "") == field.default_text or field.kind is bool
        (row,) = [row for row in rows if field.flag in re.split(r"[ ,/]+", row.split("`")[1])]
        assert field.option.range in row
        assert field.default_text in row.rsplit("|", 2)[1]


@every_command
def test_a_form_has_the_declared_defaults_and_reads_them_as_such(words, options):
    form = Form(options)
    assert [(field.name, field.default) for field in form.fields] == [
        (field.name, field.default_text) for field in declarations(options)
    ]
    needed = {field.name: "x" for field in declarations(options) if field.is_required}
    needed |= {"parties": "3"} if "parties" in needed else {}
    prefilled = {field.name: field.default for field in form.fields}
    assert form.parse({**prefilled, **needed}) == form.parse(needed)
    # What is as it would be anyhow is not in the command that a page prints.
    assert len(form.arguments({**prefilled, **needed})) == len(needed)


@every_command
def test_what_is_beyond_a_bound_is_refused_in_the_same_words_everywhere(words, options):
    for field in declarations(options):
        bounds = field.option
        if field.kind not in (int, float, Fraction):
            continue
        outside = [bounds.at_least - 1] if bounds.at_least is not None else []
        outside += [bounds.at_most + 1] if bounds.at_most is not None else []
        outside += [each for each in (bounds.above, bounds.below) if each is not None]
        for beyond in map(str, outside):
            with pytest.raises(ConfigurationError, match=field.name.replace("_", ".")) as refused:
                field.check(field.kind(beyond))
            needed = {each.name: "x" for each in declarations(options) if each.is_required}
            needed |= {"parties": "3"} if "parties" in needed else {}
            for read in (from_texts, lambda cls, given: Form(cls).parse(given)):
                with pytest.raises(ConfigurationError) as said:
                    read(options, {**needed, field.name: beyond})
                assert str(said.value) == str(refused.value)


def test_texts_are_read_as_by_the_command():
    given = Form(PlanOptions).parse(
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


def test_what_begins_with_a_dash_is_no_option():
    given = Form(PlanOptions).parse({"design": "--joint", "statistic": "--rows=9"})
    assert (given.design, given.joint, given.rows) == ("--joint", False, None)


@pytest.mark.parametrize(("name", "text"), [("rows", "seven"), ("rows", "1.5"), ("tolerance", "x")])
def test_a_wrong_text_is_the_command_s_sentence(name, text):
    with pytest.raises(ConfigurationError, match=f"Invalid value for '--{name}'"):
        Form(PlanOptions).parse({name: text})


REQUESTS = {
    RadosRequest: QueryOptions,
    MomentsRequest: QueryOptions,
    PlanRequest: PlanOptions,
    AskRequest: PlanOptions,
    DesignOptions: SimulateOptions,
    SimulationOptions: SimulateOptions,
}


@pytest.mark.parametrize(("cls", "options"), REQUESTS.items())
def test_requests_have_the_commands_defaults(cls, options):
    asked = {field.name: field for field in declarations(options)}
    for field in declarations(cls):
        if field.name in asked and not field.is_required and not asked[field.name].is_required:
            assert field.default == asked[field.name].default, field.name


def test_python_s_keywords_have_the_declared_defaults():
    keywords = inspect.signature(radofed.simulate).parameters
    for field in declarations(SimulationFields):
        assert keywords[field.name].default == field.default
    with pytest.raises(TypeError, match="party"):
        radofed.simulate("nowhere.csv", party=3)


def test_bounds_without_a_library_are_the_library_s():
    assert (LEAST_KEY_BITS, KEY_BITS, MOST_KEY_BITS) == (public.MINIMUM_BITS, public.DEFAULT_BITS, public.MAXIMUM_BITS)


def test_the_usual_design_protects_records_and_stays_within_a_usual_policy():
    """`check_query` compares the kind's scope and amounts, delta, attempts and lifetime with the policy."""
    request = release_request(SCHEMA, ReleaseFields(epsilon=Fraction(1)))
    kind = request.kind(2, (300, 300, 300))
    assert ReleaseFields().design_name == USUAL_DESIGN == kind.name
    assert kind.scope == "record"
    assert not Policy().allow_unprotected
    limits = PolicyLimits()
    assert kind.amounts.get("rados", 0) <= limits.rados_per_query
    assert declaration(QueryTerms, "delta").default <= limits.delta_per_query
    assert declaration(QueryTerms, "attempts").default <= limits.attempts_per_query
    assert declaration(QueryTerms, "expires_after_s").default <= limits.lifetime_per_query_s


@pytest.mark.more
def test_no_command_takes_its_own_options_by_text():
    """What mypy cannot see drifts: no `locals()`, no `given["name"]`."""
    for folder in ("dpcore", "learner", "radofed"):
        for file in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                assert not (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "locals"), file
                if isinstance(node, ast.Subscript) and isinstance(getattr(node.slice, "value", 0), str):
                    assert getattr(node.value, "id", "") != "given", f"{file}:{node.lineno}"
