"""What is installed is what the checkout names: every package by its hash, the base image by its digest."""

import hashlib
import importlib.util
import os
import re
import subprocess
import sys
import tomllib
import zipfile

import pytest
import yaml

from tests.deploy.containerfile import read
from tests.deploy.reading import DEPLOY, ROOT

_FOUND = importlib.util.spec_from_file_location("deploy_install", DEPLOY / "install.py")
install = importlib.util.module_from_spec(_FOUND)
_FOUND.loader.exec_module(install)

LOCKED = (ROOT / "constraints.txt").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]
DIGEST = re.compile(r"[\w./:-]+@sha256:[0-9a-f]{64}")
SHOWN = [
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "docs").rglob("*.ipynb")),
    *(path for path in sorted(DEPLOY.rglob("*")) if path.is_file() and path.suffix != ".pyc"),
    *(
        ROOT / name
        for name in ("README.md", "Makefile", ".ci/run", ".github/workflows/checks.yml", "benchmarks/README.md")
    ),
]


@pytest.mark.parametrize("file", ["constraints.txt", "protos/tools.txt", "tests/crates/validator.txt"])
def test_every_package_is_pinned_and_has_hashes(file):
    packages = install.locked((ROOT / file).read_text())
    assert packages
    for name, block in packages.items():
        first, *lines = block.splitlines()
        assert re.match(r"[\w.-]+(\[[\w,-]+\])?==[\w.]+( ; [^\\]+)? \\$", first), name
        hashes = [line for line in lines if not line.startswith("    #")]
        assert hashes
        assert all(re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}( \\)?", line) for line in hashes), name


def test_constraints_name_no_host_and_no_option():
    assert not re.search(r"://|^-|^ +--(?!hash)", LOCKED, re.MULTILINE)


def test_constraints_have_what_the_extras_and_the_build_need_and_nothing_else():
    packages = install.locked(LOCKED)
    assert set(install.needed(packages, install.direct(PROJECT, EXTRAS))) == packages.keys()
    party = set(install.needed(packages, install.direct(PROJECT, [])))
    assert {"grpcio", "cffi", "hatchling", "pathspec"} <= party
    assert not party & {"scikit-learn", "pycryptodome", "phe", "ray", "pytest", "jinja2"}
    assert {"scikit-learn", "joblib"} <= set(install.needed(packages, install.direct(PROJECT, ["notebook"])))
    learner = set(install.needed(packages, install.direct(PROJECT, ["learner"])))
    assert "pycryptodome" in learner
    # Under GPLv3: no role needs it.
    assert "phe" not in learner


def test_distributions_of_the_checkout_are_installed_from_it_and_come_from_no_index():
    assert install.folders(PROJECT, ["research"]) == ["dpcore/research"]
    assert not install.folders(PROJECT, ["learner", "all", "dev"])
    assert "scipy" in install.direct(PROJECT, ["research"])
    assert "radofed-research" not in install.direct(PROJECT, ["research"])
    assert (ROOT / "dpcore/research/pyproject.toml").exists()


def test_every_install_command_is_of_packages_with_hashes():
    """`deploy/install.py` itself hands the hashes on; `--no-deps` of a wheel or a checkout fetches nothing."""
    commands = [
        line
        for file in SHOWN
        if file.name != "install.py"
        for line in file.read_text().replace("\\\n", " ").splitlines()
        if re.search(r"\bpip3?\b[^|;&]*\binstall\b|\buv (pip|add|sync)\b", line)
    ]
    assert commands, "the Makefile has some"
    for line in commands:
        assert "--require-hashes" in line or "--no-deps" in line, line


def test_an_older_python_is_named():
    code = "import runpy, sys; sys.modules['tomllib'] = None; runpy.run_path(sys.argv.pop(1), run_name='__main__')"
    found = subprocess.run(
        [sys.executable, "-c", code, str(DEPLOY / "install.py")], capture_output=True, text=True, check=False
    )
    assert found.returncode == 1
    assert found.stderr.startswith("install.py: radofed needs Python 3.11 or newer, and this is 3.")
    assert "Traceback" not in found.stderr


def test_commands_that_install_name_extras_that_there_are():
    named = set()
    for file in SHOWN:
        for line in re.findall(r"deploy/install\.py([^`\n|]*)", file.read_text()):
            named |= {each for each in re.split(r"[\s,]+", line) if re.fullmatch("[a-z]+", each) and each in EXTRAS}
            unknown = set(re.findall(r"(?<=\s)[a-z]+(?=\s|$)", line.partition("#")[0])) - EXTRAS.keys()
            assert not unknown or file.name in {"install.py", "Makefile", "Containerfile"}, (file, line)
    assert {"learner", "report", "console", "metrics", "postgresql", "sqlite", "duckdb", "notebook", "all"} <= named


def test_every_base_image_is_pinned_by_its_digest():
    arguments, stages = read()
    compose = yaml.safe_load((DEPLOY / "compose/node.yml").read_text())["x-build"]["args"]
    assert compose["BASE"] == f"${{BASE:-{arguments['BASE']}}}"
    assert {stage.base for stage in stages.values()} - stages.keys() == {"${BASE}"}
    assert DIGEST.fullmatch(arguments["BASE"])
    assert not DIGEST.fullmatch("python:3.11-slim")
    assert not DIGEST.fullmatch("python:3.11-slim@sha256:9c900dea")


class Checkout:
    """A project that needs one package, of which there is a wheel in a folder, and an environment to install into."""

    def __init__(self, directory) -> None:
        self.root, self.environment = directory / "checkout", directory / "environment"
        self.root.mkdir()
        wheel = directory / "tiny-1.0-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("tiny.py", "")
            info = "tiny-1.0.dist-info"
            archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
            archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            archive.writestr(f"{info}/RECORD", "")
        self.hash = hashlib.sha256(wheel.read_bytes()).hexdigest()
        (self.root / "pyproject.toml").write_text(
            '[build-system]\nrequires = []\n[project]\nname = "p"\nversion = "1"\ndependencies = ["tiny>=1"]\n'
            "[project.optional-dependencies]\nmore = []\n"
        )
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", self.environment], check=True)

    def install(self, constraints: str, *arguments: str) -> int:
        (self.root / "constraints.txt").write_text(constraints)
        return install.main(["--only-needed", "--python", str(self.environment), *arguments])

    @property
    def has_it(self) -> bool:
        return any(self.environment.rglob("tiny.py"))


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    made = Checkout(tmp_path)
    monkeypatch.setattr(install, "ROOT", made.root)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return made


def test_a_package_with_its_hash_is_installed(checkout):
    assert checkout.install(f"tiny==1.0 \\\n    --hash=sha256:{checkout.hash}\n    # via p\n") == 0
    assert checkout.has_it


@pytest.mark.parametrize("options", [" \\\n    --hash=sha256:" + "0" * 64, ""], ids=["another hash", "no hash"])
def test_a_package_without_its_hash_is_not_installed(checkout, options, capfd):
    assert checkout.install(f"tiny==1.0{options}\n    # via p\n") != 0
    assert not checkout.has_it
    assert "hash" in capfd.readouterr().err.lower()


def test_what_is_not_listed_is_not_installed(checkout):
    with pytest.raises(KeyError):
        checkout.install("")
    for arguments in (["mroe"], ["--with", "huge"]):
        with pytest.raises(SystemExit):
            checkout.install(f"tiny==1.0 \\\n    --hash=sha256:{checkout.hash}\n", *arguments)
    assert not checkout.has_it


def test_packages_are_carried_to_a_machine_without_a_network(checkout, tmp_path, monkeypatch, capfd):
    listed, folder = f"tiny==1.0 \\\n    --hash=sha256:{checkout.hash}\n    # via p\n", tmp_path / "packages"
    assert checkout.install(listed, "--download", str(folder)) == 0
    assert [file.name for file in folder.iterdir()] == ["tiny-1.0-py3-none-any.whl"]
    assert not checkout.has_it
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.delenv("PIP_NO_INDEX")
    # Were it asked, this index would answer nothing.
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/")
    with pytest.raises(SystemExit):
        checkout.install(listed, "--packages", str(tmp_path / "absent"))
    assert "make one with --download" in capfd.readouterr().err
    assert checkout.install(listed, "--packages", str(folder)) == 0
    assert checkout.has_it


def test_a_package_that_was_changed_on_the_way_is_not_installed(checkout, tmp_path, capfd):
    listed, folder = f"tiny==1.0 \\\n    --hash=sha256:{checkout.hash}\n    # via p\n", tmp_path / "packages"
    assert checkout.install(listed, "--download", str(folder)) == 0
    wheel = next(folder.iterdir())
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("more.py", "")
    assert checkout.install(listed, "--packages", str(folder)) != 0
    assert not checkout.has_it
    assert "by --download with the same extras" in capfd.readouterr().err
    with pytest.raises(SystemExit):
        checkout.install(listed, "--packages", str(folder), "--download", str(folder))
    assert "on the one without" in capfd.readouterr().err
