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


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_metrics_on_a_port_of_the_host(tmp_path, name):
    """deploy/listen.sed, after it: the port that the units may bind."""
    file = laid_out(Path(shutil.copy(DEPLOY / "samples" / name, tmp_path)))
    before = load_node_config(file).model_dump()
    file.write_text(sed(DEPLOY / "listen.sed", file))
    found = load_node_config(file).model_dump()
    if name == "learner.toml":
        assert found == before
        return
    assert found.pop("watch") == {"listen": "127.0.0.1:9464", "socket": None}
    del before["watch"]
    assert found == before
    unit = (DEPLOY / "systemd" / f"rado-{name.removesuffix('.toml')}.service").read_text()
    assert "SocketBindAllow=ipv4:tcp:9464\n" in unit


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
