"""The commands of docs/operating.md, section 2, from "Keys at home" to "Learner", typed in order by five members.

Each member has a directory, as on a machine of its own; requests, admissions and the schema travel by copies. Nodes are
processes that a shell starts. What a person adds is here: digits, rows, and the lines of `policy.toml`.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.docs.examples import DOCS, rado
from tests.federation.processes import free_port
from tests.waiting import HANG_S, wait_until
from wire.envelopes import public_key_of, spoken

pytestmark = pytest.mark.slow

PARTIES = ("north", "south", "west")
# The directory of each member, as the page names it.
MEMBERS = {"hub": "coordinator", **{name: name for name in PARTIES}, "lab": "lab"}
PAGE = (DOCS / "operating.md").read_text().partition("## 2. Setting up, step by step\n")[2].partition("\n## 3. ")[0]
SECTIONS = {
    title: re.sub(r" \\\n +", " ", text)
    for title, text in re.findall(r"^### (.*?)\n(.*?)(?=^### |\Z)", PAGE, re.MULTILINE | re.DOTALL)
}
# From the first request to the evaluated model.
LONGEST_S = 900.0
ROWS = 4000
MAJORITY_ERROR = 40.0


def commands(title: str) -> list[str]:
    return re.findall(r"^ {4}((?:cd \w+ && )?rado [^\n]*)$", SECTIONS[title], re.MULTILINE)


def patients(seed: int, rows: int = ROWS) -> str:
    """Made-up rows with the columns that the page's commands name."""
    random = np.random.default_rng(seed)
    age, smoker = random.integers(20, 95, rows), random.random(rows) < 0.3
    income = random.gamma(4, 9000, rows).round()
    again = random.random(rows) < 1 / (1 + np.exp(-0.07 * (age - 60) - smoker))
    lines = [
        f"{years},{'yes' if smokes else 'no'},{money:g},{'yes' if back else 'no'}"
        for years, smokes, money, back in zip(age, smoker, income, again, strict=True)
    ]
    return "\n".join(["age,smoker,income,readmitted", *lines, ""])


class Members:
    """What people do beside typing the page's lines."""

    def __init__(self, root: Path) -> None:
        self.root, self.address = root, f"localhost:{free_port()}"
        self.nodes: dict[str, subprocess.Popen[bytes]] = {}
        (root / "bin").mkdir()
        shim = root / "bin" / "rado"
        shim.write_text(f'#!/bin/sh\nexec {sys.executable} -m radofed "$@"\n')
        shim.chmod(0o700)

    def type(self, line: str, where: str = ".", **options: str) -> str:
        """Type one line. options: what the command would ask a person in a terminal."""
        line = line.replace("rado.example.org:7443", self.address)
        more = [f"--{name}={value}" for name, value in options.items()]
        return rado(line, self.root / where, *more)

    def start(self, line: str, member: str, words: str, where: str = ".") -> None:
        """Type a line that runs until the node ends, in a shell of its own, and wait for what it logs."""
        log = self.root / f"{member}.log"
        with log.open("wb") as file:
            self.nodes[member] = subprocess.Popen(
                ["sh", "-c", line.replace("rado ", "exec rado ")],
                cwd=self.root / where, stdout=file, stderr=file, start_new_session=True,
                env=os.environ | {"PATH": f"{self.root / 'bin'}:/usr/bin:/bin"},
            )  # fmt: skip
        wait_until(lambda: words in log.read_text(), what=f"{member}: {log.read_text()}")

    def stop(self) -> dict[str, int]:
        """Stop every node as a terminal does; their exit codes."""
        for node in self.nodes.values():
            node.send_signal(signal.SIGINT)
        return {name: node.wait(HANG_S) for name, node in self.nodes.items()}

    def digits(self, member: str) -> str:
        """What a member reads out: of its own key."""
        return spoken(public_key_of(self.root / member / "signing.key"))

    def files(self, member: str) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (self.root / member).iterdir() if path.is_file()}


@pytest.fixture
def members(tmp_path) -> Iterator[Members]:
    found = Members(tmp_path)
    yield found
    for node in found.nodes.values():
        node.kill()
        node.wait(HANG_S)


def request_digits(said: str) -> str:
    (digits,) = re.findall(r"(?:\d{5} ){5}\d{5}", said)
    return digits


def keys_at_home(members: Members) -> dict[str, dict[str, bytes]]:
    """Steps 1 to 4. Returns the files of each party before it accepts anyone."""
    create, hub, party, lab, sign, install, accept, ask = commands("Keys at home")
    federation = request_digits(members.type(create))
    # The page shows one party's line; the others type theirs.
    lines = [hub, *(party.replace("north", name) for name in PARTIES), lab]
    read_out = {}
    for line, (name, directory) in zip(lines, MEMBERS.items(), strict=True):
        read_out[name] = request_digits(members.type(line))
        shutil.copy(members.root / directory / f"{name}.request", members.root)
    given = [f"--fingerprint={name}={digits}" for name, digits in read_out.items()]
    rado(sign, members.root, *given)
    for name, directory in MEMBERS.items():
        shutil.copy(members.root / f"operator/admissions/{name}.admission", members.root)
        line = install.replace("north.admission", f"{name}.admission").replace(
            "--directory north", f"--directory {directory}"
        )
        members.type(line, fingerprint=federation)
    installed = {name: members.files(name) for name in PARTIES}
    given = {name: f"--fingerprint={name}={members.digits(name)}" for name in (*PARTIES, "lab")}
    for name in PARTIES:
        others = [other for other in given if other != name]
        line = accept.replace("south west lab", " ".join(others)).replace("north/", f"{name}/")
        rado(line, members.root, *(given[other] for other in others))
    rado(ask, members.root, *(given[name] for name in PARTIES))
    return installed


def schema(members: Members) -> None:
    """One party drafts it; the digest of the file that all have is the same."""
    for seed, name in enumerate(PARTIES):
        (members.root / name / "data.csv").write_text(patients(seed))
    infer, check = commands("Schema")
    members.type(infer.replace("--output", "--bounds income=0:200000 --output"), "north")
    for name in (*PARTIES[1:], "lab"):
        shutil.copy(members.root / "north/schema.toml", members.root / name)
    digests = {re.findall(r"\b[0-9a-f]{64}\b", members.type(check, name))[0] for name in PARTIES}
    assert len(digests) == 1


def decide(members: Members, name: str) -> None:
    """As the table of "Each party" says for `newton` and its evaluation."""
    row = next(line for line in SECTIONS["Each party"].splitlines() if line.startswith("| queries that protect whole"))
    (designs,) = re.findall(r"`(designs = \[.*?\])`", row)
    (limit,) = re.findall(r"such as ([\d.]+) for one model at epsilon 1 and its evaluation at 0.1", row)
    policy = members.root / name / "policy.toml"
    text, changed = re.subn(r"^designs = \[\].*$", designs, policy.read_text(), flags=re.MULTILINE)
    assert changed == 1
    text, changed = re.subn(r"^(\[limits\]\n(?:.*\n)*?epsilon = )\S+", rf'\g<1>"{limit}"', text, flags=re.MULTILINE)
    assert changed == 1
    policy.write_text(text)


def test_three_members_come_from_nothing_to_an_evaluated_model(members):
    begun = time.monotonic()
    installed = keys_at_home(members)
    schema(members)
    (start_hub,) = commands("Coordinator")
    members.start(start_hub, "hub", '"listening"')
    check, start = commands("Each party")
    for name in PARTIES:
        decide(members, name)
        members.type(check, name)
        members.start(start, name, '"started"', name)
    keygen, train, evaluate, predict, export, *_ = commands("Learner")
    assert "3072" in members.type(keygen, "lab")
    members.type(train, "lab")
    said = members.type(evaluate, "lab")
    assert time.monotonic() - begun < LONGEST_S
    (error,) = re.findall(r"about ([\d.]+) %; on new rows of the same kind", said)
    assert float(error) < MAJORITY_ERROR
    (members.root / "lab/new.csv").write_text(patients(9, 50))
    members.type(predict, "lab")
    members.type(export, "lab")
    assert {"newton.json", "scores.csv", "units.json"} <= members.files("lab").keys()
    for name in PARTIES:
        now = members.files(name)
        assert {file for file, content in installed[name].items() if now[file] != content} == {"policy.toml"}
        assert now.keys() - installed[name].keys() == {"data.csv", "schema.toml"}
    assert set(members.stop().values()) == {0}
