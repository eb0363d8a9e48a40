"""The commands of the survival study's last section, over nodes of four hospitals."""

import json
import shlex
from pathlib import Path

import pytest

from learner.model import Model
from radofed.node_config import PolicyChoices
from tests.docs.examples import DOCS, rado
from tests.federation.processes import ProcessFederation
from tests.waiting import wait_until

TUTORIAL = DOCS / "tutorials/survival-study.ipynb"


def cells() -> tuple[list[str], list[str]]:
    """The tutorial's code until the schema is there, and the commands of its last section."""
    found = json.loads(TUTORIAL.read_text())["cells"]
    code = ["".join(cell["source"]) for cell in found if cell["cell_type"] == "code"][:2]
    return code, [line.strip() for line in "".join(found[-1]["source"]).splitlines() if line.startswith("    rado ")]


@pytest.mark.more
def test_its_commands_run_between_hospitals(tmp_path):
    code, commands = cells()
    assert [(command.split()[2], "--plan" in command) for command in commands] == [
        ("survival", True),
        ("survival", False),
        ("train", False),
    ]
    names: dict = {}
    for each in code:
        exec(compile(each, TUTORIAL.name, "exec"), names)
    tables = {name: path.read_text() for name, path in names["tables"].items()}
    rows = {name: text.count("\n") - 1 for name, text in tables.items()}
    schema = names["schema"].to_toml()
    policy = PolicyChoices(designs=("statistic", "moments", "gradient"), epsilon="10", delta="1e-4")
    with ProcessFederation(tmp_path, parties=tables, schema=schema, policy=policy, rows_at_least=rows) as federation:
        lab: Path = federation.learner.directory
        (lab / "schema.toml").write_text(schema)
        federation.start_all()
        wait_until(lambda: "listening" in federation.log("coordinator"), what="the coordinator")
        rado("rado learner keygen --config learner.toml", lab)
        planned, asked, _ = (json.loads(rado(command, lab, "--format", "json"))["data"] for command in commands)
    assert planned["plan"]["rows"] == 12_000
    assert asked["rows"] == sum(rows.values()) == 12_000
    ratio = next(each for each in asked["figures"] if each["quantity"] == "hazard ratio")
    assert 0.5 < ratio["lower"] < ratio["upper"] < 0.7
    assert shlex.split(commands[1])[-1] == "Study 17"
    ratios = {each.change: each.ratio for each in Model.load(lab / "hazards.json").ratios()}
    assert 0.55 < ratios["new instead of standard"] < 0.85
