"""What an import loads, and that all packages come from one place."""

import importlib
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import radofed
from radobase.version import _of_checkout, program_version
from radofed.cli.entry_point import PACKAGES

HEAVY = ("numpy", "scipy", "sklearn", "grpc", "google.protobuf", "pydantic", "pyarrow", "cryptography", "rich")
ROOT = Path(__file__).parents[1]
RESEARCH = ROOT / "dpcore/research"


def python(code, *arguments, cwd=ROOT, **environment):
    # Measuring coverage would load modules of its own.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env=inherited | environment,
    )


def loaded_after(code):
    result = python(f"{code}\nimport sys\nprint('\\n'.join(sys.modules))")
    assert result.returncode == 0, result.stderr
    return set(result.stdout.splitlines())


def test_help_waits_for_nothing_heavy():
    """The half second that `rado --help` may take is spent on none of these."""
    modules = loaded_after("from radofed.cli.entry_point import run\nassert run(['--help']) == 0")
    assert "radofed.cli.commands" in modules
    assert not [name for name in HEAVY if name in modules]


def test_importing_radofed_waits_for_nothing():
    modules = loaded_after("import radofed")
    assert not [name for name in HEAVY if name in modules]
    assert not modules & {"dpcore", "wire", "parties", "coordinator", "learner"}


def test_the_public_names_are_there():
    assert {"Schema", "Session", "LearnerConfig", "Release", "Model", "RadoBoost", "MeanVariance", "provision"} <= set(
        radofed.__all__
    )
    for name in radofed.__all__:
        assert getattr(radofed, name) is not None, name
    assert dir(radofed) == sorted(radofed.__all__)
    assert radofed.provision is importlib.import_module("radofed.provision")
    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = radofed.nothing_like_it


@pytest.mark.parametrize(
    ("package", "forbidden"),
    [
        (
            "parties.node",
            (
                "coordinator",
                "learner",
                "sklearn",
                "ray",
                "phe",
                "Crypto",
                "prometheus_client",
                "dpcore.paillier.secret",
            ),
        ),
        ("parties.preflight", ("coordinator", "learner", "sklearn", "ray", "phe", "Crypto", "dpcore.paillier.secret")),
        (
            "coordinator.server",
            ("parties", "learner", "sklearn", "ray", "phe", "Crypto", "prometheus_client", "dpcore.paillier.secret"),
        ),
        ("learner.session", ("parties", "coordinator", "ray")),
        ("wire.transport", ("parties", "coordinator", "learner", "sklearn", "phe", "Crypto", "dpcore.paillier.secret")),
        ("dpcore.queries.rados", ("wire", "grpc", "sqlite3", "sklearn", "phe", "Crypto")),
    ],
)
def test_a_role_loads_no_other_role(package, forbidden):
    modules = loaded_after(f"import {package}")
    assert package in modules
    assert not [name for name in forbidden if name in modules]


@pytest.mark.parametrize("name", ["learner", "wire", "rado"])
def test_a_package_from_elsewhere_is_refused_before_it_is_imported(tmp_path, name):
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("raise SystemExit('imported a stranger')")
    code = "import sys\nfrom radofed.cli.entry_point import run\nsys.exit(run(['--version']))"
    result = python(code, PYTHONPATH=str(tmp_path), cwd=tmp_path)
    assert result.returncode == 4
    assert repr(name) in result.stderr
    assert str(tmp_path) in result.stderr
    assert "stranger" not in result.stderr


@pytest.mark.more
def test_the_module_is_the_command():
    result = subprocess.run(
        [sys.executable, "-m", "radofed", "--version"], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert (result.returncode, result.stdout) == (0, f"rado {radofed.__version__}\n")


def test_a_checkout_states_its_own_version_and_not_that_of_the_last_installation(tmp_path, monkeypatch):
    """A node signs its version and shows it to others, and a cluster's nodes compare theirs."""
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    monkeypatch.setattr("radobase.version.version", lambda _: "0.0.1")
    assert program_version.__wrapped__() == stated
    assert _of_checkout(tmp_path) == ""
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "another"\nversion = "9"\n')
    assert _of_checkout(tmp_path) == ""


def built(source, directory):
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    result = subprocess.run(build, capture_output=True, text=True, check=False, cwd=source)
    assert result.returncode == 0, result.stdout + result.stderr
    (wheel,) = directory.glob("*.whl")
    return wheel


def test_the_wheel_holds_the_packages_and_nothing_else(tmp_path):
    wheel = built(ROOT, tmp_path)
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata_name,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = archive.read(metadata_name).decode()
        (scripts,) = (archive.read(name).decode() for name in names if name.endswith("entry_points.txt"))
    packages = {name for name in names if ".dist-info/" not in name}
    assert {name.split("/")[0] for name in packages} == set(PACKAGES)
    for source, place in ((ROOT, PACKAGES[:-1]), (ROOT / "protos", PACKAGES[-1:])):
        for package in place:
            for module in (source / package).rglob("*.py"):
                assert (str(module.relative_to(source)) in packages) == (RESEARCH not in module.parents)
    assert not [name for name in packages if name.startswith("dpcore/research")]
    bindings = {"query_pb2.py", "query_pb2.pyi", "party_service_pb2_grpc.py", "learner_service_pb2.py"}
    assert {f"rado/v1/{name}" for name in bindings} <= packages
    assert {f"{package}/py.typed" for package in PACKAGES if package != "rado"} <= packages
    assert not [name for name in packages if "__pycache__" in name or Path(name).name.startswith("test_")]
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    assert "License-Expression: Apache-2.0" in metadata
    assert "rado = radofed.cli:main" in scripts


def test_researchers_material_is_a_distribution_of_its_own(tmp_path):
    """`pip install radofed[research]` brings it, in the version of radofed; nothing of it is in two distributions."""
    with zipfile.ZipFile(built(RESEARCH, tmp_path)) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == {str(module.relative_to(ROOT)) for module in RESEARCH.rglob("*.py")}
    main = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    own = tomllib.loads((RESEARCH / "pyproject.toml").read_text())["project"]
    assert own["version"] == main["version"]
    radofed_itself, *needed = own["dependencies"]
    assert radofed_itself == f"radofed=={main['version']}"
    assert main["optional-dependencies"]["research"] == [f"radofed-research=={main['version']}", *needed]


@pytest.mark.more
def test_researchers_material_loads_what_its_distribution_names():
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in RESEARCH.rglob("*.py")]
    modules = loaded_after(f"import importlib\nfor name in {names}: importlib.import_module(name)")
    assert "scipy" in modules
    assert not modules & {"sklearn", "phe", "Crypto", "ray", "wire", "parties", "coordinator", "learner"}
