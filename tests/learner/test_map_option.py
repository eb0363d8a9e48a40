"""`rado learner query --map` and `rado plan --map`: a map in the columns' units, sent, charged and refused as such."""

import json
from fractions import Fraction

import pytest

from radobase.schema_files import load_feature_map
from radofed.cli.entry_point import run
from radofed.planning.design_cost import PlanRequest
from tests.federation.learner import SCHEMA
from tests.federation.setting import ROWS
from wire.query import Query

MAP = """
map_version = 1
[[terms]]
column = "age"
[[terms]]
name = "bends"
hats = "age"
knots = [0, 20, 40, 65, 100]
[[terms]]
column = "smoker"
[[terms]]
product = ["bends", "smoker"]
"""
MOMENTS = ("--design", "moments", "--epsilon", "1")


@pytest.fixture
def files(tmp_path):
    (tmp_path / "schema.toml").write_text(SCHEMA.to_toml())
    (tmp_path / "map.toml").write_text(MAP)
    return tmp_path


def asked(setting, files, *more):
    options = ("--config", str(setting.config_file), "--schema", str(files / "schema.toml"))
    return run(["learner", "query", *options, *more])


def planned(capsys, files, *more, code=0):
    rows = ("--party-rows", ",".join(map(str, ROWS.values())), "--schema", str(files / "schema.toml"))
    assert run(["plan", *rows, *more, "--format", "json"]) == code
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    "design", [MOMENTS, ("--design", "gaussian", "--rados", "5", "--epsilon", "9")], ids=["moments", "gaussian"]
)
def test_a_map_travels_with_the_query_and_costs_what_is_planned(setting, files, capsys, design):
    cost = planned(capsys, files, *design, "--map", str(files / "map.toml"))["data"]
    plain = planned(capsys, files, *design)["data"]
    # Three parties: nothing is collected before two of them.
    assert asked(setting, files, *design, "--map", str(files / "map.toml")) == 0
    assert "mapped to 2 coordinates, 3 hats, 3 products" in capsys.readouterr().err
    (envelope,) = setting.stub.submitted
    query = Query.from_bytes(envelope.payload)
    assert query.feature_map == load_feature_map(files / "map.toml", SCHEMA)
    assert query.d == 9
    share = getattr(query.kind, "share_sigma", None) or query.kind.design.share_sigma
    assert (cost["feasible"], cost["share_sd"]) == (True, share)
    assert cost["share_sd"] != plain["share_sd"]


def test_a_plan_counts_the_functions_of_the_map(files):
    found = load_feature_map(files / "map.toml", SCHEMA)
    options = {"design": "moments", "party_rows": (100, 200), "epsilon": Fraction(1)}
    assert PlanRequest.over(SCHEMA, feature_map=found, **options).coordinates == found.d == 9


def test_the_plan_says_what_records_are_mapped_to(files, capsys):
    rows = ("--rows", "600", "--parties", "3", "--schema", str(files / "schema.toml"))
    assert run(["plan", *rows, *MOMENTS, "--map", str(files / "map.toml")]) == 0
    assert "Moments of records mapped to 2 coordinates, 3 hats, 3 products" in capsys.readouterr().out


REFUSED = [
    (("--design", "plain", "--rados", "9"), "plain takes no feature map"),
    (("--design", "dp-feat", "--sensitive", "smoker", "--rados", "9"), "dp-feat takes no feature map"),
    (("--design", "fixed-support", "--rados", "9"), "fixed-support"),
]


@pytest.mark.parametrize(("options", "says"), REFUSED)
def test_designs_that_take_no_map_refuse_it_before_anything_is_sent(setting, files, capsys, options, says):
    mapped = (*options, "--map", str(files / "map.toml"))
    assert asked(setting, files, *mapped) in (4, 6)
    assert says in capsys.readouterr().err
    assert setting.stub.submitted == []
    assert says in planned(capsys, files, *mapped, code=4)["error"]["message"]


def test_a_map_that_does_not_fit_is_refused_before_anything_is_sent(setting, files, capsys):
    (files / "map.toml").write_text(MAP.replace("40, 65", "65, 40"))
    assert asked(setting, files, *MOMENTS, "--map", str(files / "map.toml")) == 4
    assert "map.toml: term 2 (hats of 'age'): knots 65 and 40 are not in ascending order" in capsys.readouterr().err
    assert setting.stub.submitted == []
    assert asked(setting, files, *MOMENTS, "--map", str(files / "absent.toml")) == 4
    assert "absent.toml" in capsys.readouterr().err


def test_a_plan_of_a_map_needs_the_schema_and_a_design(files, capsys):
    file = str(files / "map.toml")
    assert run(["plan", "--rows", "600", "--parties", "3", "--coordinates", "3", *MOMENTS, "--map", file]) == 4
    assert "give --schema" in capsys.readouterr().err
    said = planned(capsys, files, "--estimator", "newton", "--epsilon", "1", "--map", file, code=4)
    assert "--map is of a design" in said["error"]["message"]
