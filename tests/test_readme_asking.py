"""The examples of README's chapter on asking run, and print what it says that they print."""

import io
import json
import re
import shlex
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
import pytest

from learner.federation import Federation as Asked
from radofed.cli.entry_point import run
from radofed.templates import PolicyChoices
from tests.federation import Federation, wait_until

ROOT = Path(__file__).resolve().parents[1]
CHAPTER = re.search(r"^## Asking\n(.*?)^## ", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)[1]
# A block of Python or a command, and what it prints where the next block says so.
EXAMPLES = re.findall(
    r"(?:^```python\n(.*?)^```\n|^    (rado [^\n]*)\n)(?:\n^```\n(.*?)^```\n)?", CHAPTER, re.MULTILINE | re.DOTALL
)
PYTHON = [(code, printed) for code, _, printed in EXAMPLES if code]
SIMULATIONS = [(command, printed) for _, command, printed in EXAMPLES if command.startswith("rado simulate ")]
ASKING = [command for _, command, _ in EXAMPLES if command.startswith("rado learner ")]
UNSTEADY = re.compile(r"[+]- +[0-9.]+|[0-9.]+$")
"""A deviation over three folds, and seconds, which are the machine's."""
PARTIES = ("north", "south", "west")


def assert_says(found: str, printed: str):
    """The same words, and numbers that are alike: other draws of noise and another rounding change them a little."""
    number = r"-?\d+(?:\.\d+)?"
    assert re.sub(number, "#", found).split() == re.sub(number, "#", printed).split()
    assert np.allclose(
        [float(text) for text in re.findall(number, found)],
        [float(text) for text in re.findall(number, printed)],
        rtol=0.04,
        atol=0.002,
    )


def rado(command: str, where: Path, *more: str) -> str:
    """What a command line prints in that directory; it runs in this process, which spares its start."""
    with chdir(where), redirect_stdout(io.StringIO()) as printed, redirect_stderr(io.StringIO()) as told:
        code = run([*shlex.split(command)[1:], *more])
    assert code == 0, printed.getvalue() + told.getvalue()
    return printed.getvalue()


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """Where the blocks of Python ran, their names, and for each what it printed."""
    where = tmp_path_factory.mktemp("readme")
    names: dict = {}
    printed = []
    with chdir(where):
        for code, _ in PYTHON:
            with redirect_stdout(io.StringIO()) as text:
                exec(compile(code, "README.md", "exec"), names)
            printed.append(text.getvalue())
    return where, names, printed


def test_all_examples_are_found():
    assert len(PYTHON) == CHAPTER.count("```python") == 5
    assert len(SIMULATIONS) == 2
    assert [command.split()[2] for command in ASKING] == ["statistic", "train", "evaluate"]
    assert sum(bool(printed) for *_, printed in EXAMPLES) == 6


def test_python_prints_what_the_readme_says(told):
    _, names, printed = told
    for found, (_, said) in zip(printed, PYTHON, strict=True):
        assert_says(found, said)
    assert isinstance(names["federation"], Asked)


@pytest.mark.parametrize(("command", "said"), SIMULATIONS, ids=lambda value: value[-60:])
def test_simulations_print_what_the_readme_says(told, command, said):
    found = rado(command, told[0]).splitlines()
    for line, row in zip(found, said.splitlines(), strict=False):
        assert_says(*(UNSTEADY.sub("", text) for text in (line, row)))


def test_commands_for_organisations(told, tmp_path):
    where, names, _ = told
    header, *rows = (where / "patients.csv").read_text().splitlines()
    schema = names["federation"].schema.to_toml()
    tables = {name: "\n".join([header, *rows[place::3]]) + "\n" for place, name in enumerate(PARTIES)}
    policy = PolicyChoices(designs=("statistic", "gradient", "moments"), epsilon="10", delta="1e-4")
    sizes = dict.fromkeys(PARTIES, 2600)
    with Federation(tmp_path, parties=tables, schema=schema, policy=policy, rows_at_least=sizes) as federation:
        lab = federation.learner.directory
        (lab / "schema.toml").write_text(schema)
        federation.start_all()
        wait_until(lambda: "listening" in federation.log("coordinator"), what="the coordinator")
        rado("rado learner keygen --config learner.toml", lab)
        # Fewer rounds take less time, and are otherwise alike.
        more = {"train": ("--rounds", "3")}
        statistic, trained, evaluated = (
            json.loads(rado(command, lab, *more.get(command.split()[2], ()), "--format", "json"))["data"]
            for command in ASKING
        )
    true = np.mean((names["age"] >= 65) & names["ill"]), np.mean(~names["smoker"])
    estimates = [entry["estimate"] for entry in statistic["estimates"]]
    assert np.abs(np.subtract(estimates, true)).max() <= statistic["noise"] < 0.01
    assert trained["answers"] == 3
    assert trained["privacy"]["epsilon"] < trained["privacy"]["epsilon_if_others_collude"] <= 1
    assert evaluated["privacy"]["epsilon_if_others_collude"] <= 0.5
    assert 0.19 < evaluated["error"]["on_rows"][0] < evaluated["error"]["on_rows"][1] < 0.24
    assert evaluated["rows"] == len(rows)
