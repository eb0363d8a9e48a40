"""deploy/layout.sed turns what provisioning writes into what the samples mount, and nothing else."""

import shutil
import subprocess
from pathlib import Path

import pytest

from radofed.node_config import load_node_config
from tests.deploy.reading import DEPLOY, laid_out

CONFIGURATIONS = ["coordinator.toml", "party.toml", "learner.toml"]
WRITTEN = Path("/var/lib/rado")
# Everything else is in the member's own directory, which is mounted at /etc/rado.
ELSEWHERE = {
    "coordinator.toml": {"state_directory": WRITTEN},
    "party.toml": {"state_directory": WRITTEN, "data": Path("/srv/rado/data.csv")},
    "learner.toml": {
        "state_directory": WRITTEN,
        "paillier_key": WRITTEN / "paillier.jwk",
        "releases_directory": WRITTEN / "releases",
    },
}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_the_program_reads_the_laid_out_file(tmp_path, name):
    file = Path(shutil.copy(DEPLOY / "samples" / name, tmp_path))
    before = load_node_config(file).model_dump()
    found = load_node_config(laid_out(file))
    changed = {key: value for key, value in found.model_dump().items() if value != before[key]}
    if name != "learner.toml":
        assert changed.pop("watch")
        assert found.watch.place == WRITTEN / "watch.sock"
    assert changed == ELSEWHERE[name]


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_it_may_be_applied_again(tmp_path, name):
    file = laid_out(Path(shutil.copy(DEPLOY / "samples" / name, tmp_path)))
    once = file.read_text()
    assert laid_out(file).read_text() == once


def test_every_line_of_it_is_needed(tmp_path):
    def results(script: str) -> list[str]:
        (tmp_path / "layout.sed").write_text(script)
        files = [DEPLOY / "samples" / name for name in CONFIGURATIONS]
        return [sed(tmp_path / "layout.sed", file) for file in files]

    script = (DEPLOY / "layout.sed").read_text()
    whole = results(script)
    for line in script.splitlines(keepends=True):
        assert line.startswith("# ") or results(script.replace(line, "")) != whole, line


def sed(script: Path, file: Path) -> str:
    return subprocess.run(["sed", "-f", script, file], check=True, capture_output=True, text=True).stdout
