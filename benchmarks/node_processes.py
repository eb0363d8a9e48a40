"""A federation of real processes for a benchmark: a coordinator and parties on loopback, gRPC with mutual TLS."""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dpcore.records.features import Label, RealFeature
from dpcore.records.schema import Schema
from learner.config import LearnerConfig
from learner.decryption import create_key
from learner.session import Session
from radofed.demo.federation import Children, has_content, wait_for
from radofed.node_config import PolicyChoices
from radofed.provision import Provisioned, provision
from wire.roster import Role

Floats = NDArray[np.float64]
Labels = NDArray[np.int8]

KEY_BITS = 3072
ANY_PORT = "127.0.0.1:0"
START_WITHIN_S, LOAD_WITHIN_S = 60.0, 600.0
LABEL, POSITIVE = "label", "1"
SOCKET = "metrics.sock"
"""Of the coordinator's metrics, in its directory."""
# Wide enough for every repeat of every benchmark; a benchmark measures no privacy.
POLICY = PolicyChoices(
    designs=("plain", "moments", "gradient", "statistic"),
    allow_unprotected=True,
    epsilon="10000",
    delta="0.5",
    unbounded_queries=1000,
    rados_per_query=100_000,
    delta_per_query="1e-6",
    reason="FOR A BENCHMARK ONLY: the rows were made by it.",
)


def schema_of(columns: int) -> Schema:
    """Reals in [-1, 1], a label 0 or 1, and a bias."""
    features = tuple(RealFeature(name=f"f{i:02}", lower=-1, upper=1) for i in range(columns))
    return Schema(name="benchmark", label=Label(column=LABEL, positive=(POSITIVE,)), features=features)


@dataclass(frozen=True)
class Event:
    """A line of a node's log. at: Unix seconds, to the millisecond."""

    node: str
    at: float
    event: str
    fields: dict[str, Any]


class Nodes:
    """The running federation. The measuring process is the learner."""

    def __init__(self, made: Provisioned, children: Children, logs: Path, schema: Schema) -> None:
        self._made, self.children, self._logs, self.schema = made, children, logs, schema

    @contextmanager
    def session(self) -> Iterator[Session]:
        """A learner's session, with its key loaded."""
        (learner,) = self._made.of(Role.LEARNER)
        with Session(LearnerConfig.load(learner.config)) as session:
            assert session.key.public_key.bits == KEY_BITS
            yield session

    def calls(self) -> dict[str, int]:
        """How many calls of members the coordinator has admitted, by method, of those that were called."""
        (coordinator,) = self._made.of(Role.COORDINATOR)
        found = {}
        for line in _read_metrics(coordinator.directory / SOCKET).splitlines():
            if line.startswith("rado_calls_total{") and not line.endswith((" 0", " 0.0")):
                name, _, value = line.partition(" ")
                found[name.split('"')[1]] = int(float(value))
        return found

    def processor_s(self) -> dict[str, float]:
        """The processor time of each node's process since its start, by name."""
        return {child.name: processor_s_of(child.process.pid) for child in self.children.nodes}

    def pids(self) -> dict[str, int]:
        """Each node's process, by name."""
        return {child.name: child.process.pid for child in self.children.nodes}

    def events(self, query_id: bytes) -> list[Event]:
        """The log lines of all nodes about a query, in order of time."""
        found = [event for member in self._made.members for event in self.log(member.name)]
        return sorted((e for e in found if e.fields.get("query") == query_id.hex()), key=lambda e: e.at)

    def log(self, name: str) -> list[Event]:
        """The log lines of a node; the learner has no log."""
        path = self._logs / f"{name}.log"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [_event(name, line) for line in lines if line.startswith("{")]


def processor_s_of(pid: int) -> float:
    """Seconds of processor time of a process, from Linux's /proc."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _read_metrics(path: Path) -> str:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(str(path))
        connection.sendall(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n")
        parts = []
        while part := connection.recv(1 << 16):
            parts.append(part)
    return b"".join(parts).decode()


def _event(node: str, line: str) -> Event:
    fields = json.loads(line)
    return Event(node, datetime.fromisoformat(fields["time"]).timestamp(), fields["event"], fields)


@contextmanager
def nodes(directory: Path, parties: list[tuple[Floats, Labels]]) -> Iterator[Nodes]:
    """Start a coordinator and a party for each (rows, labels); ready once every party has its rows in memory.

    rows: (m, columns), as `schema_of` has them. Raises ChildError if a node fails or does not come up.
    """
    schema = schema_of(parties[0][0].shape[1])
    names = [f"party-{i}" for i in range(1, len(parties) + 1)]
    made = provision(
        directory / "federation",
        federation="benchmark",
        coordinator_address=ANY_PORT,
        parties=names,
        rows_at_least={name: len(labels) for name, (_, labels) in zip(names, parties, strict=True)},
        policy=POLICY,
    )
    for member, (rows, labels) in zip(made.of(Role.PARTY), parties, strict=True):
        (member.directory / "schema.toml").write_text(schema.to_toml(), encoding="utf-8")
        _write(member.directory / "data.parquet", schema, rows, labels)
        _replace(member.config, '"data.csv"', '"data.parquet"')
        # No obfuscators are made ahead: the next run must not find, or wait for, those of the last one.
        _replace(member.config, "spare_obfuscators = 1000", "spare_obfuscators = 0")
    (coordinator,) = made.of(Role.COORDINATOR)
    with coordinator.config.open("a", encoding="utf-8") as file:
        file.write(f'\n[watch]\nsocket = "{SOCKET}"\n')
    (learner,) = made.of(Role.LEARNER)
    create_key(LearnerConfig.load(learner.config).paillier_key, KEY_BITS)
    with ExitStack() as stack:
        children = stack.enter_context(Children(directory / "logs"))
        running = Nodes(made, children, directory / "logs", schema)
        _start(running, made)
        yield running
        children.check()


def _start(running: Nodes, made: Provisioned) -> None:
    children = running.children
    (coordinator,) = made.of(Role.COORDINATOR)
    address_file = coordinator.directory / "state" / "address"
    children.start(coordinator.name, "coordinator", "start", "--config", str(coordinator.config))
    wait_for(coordinator.name, lambda: has_content(address_file), children, START_WITHIN_S)
    address = address_file.read_text(encoding="utf-8").strip()
    for member in made.members:
        if member.role is not Role.COORDINATOR:
            _replace(member.config, f'"{ANY_PORT}"', f'"{address}"')
    for member in made.of(Role.PARTY):
        children.start(member.name, "party", "start", "--config", str(member.config))
    for member in made.of(Role.PARTY):
        wait_for(member.name, partial(_has_started, running, member.name), children, LOAD_WITHIN_S)


def _has_started(running: Nodes, name: str) -> bool:
    return any(event.event == "started" for event in running.log(name))


def _write(path: Path, schema: Schema, rows: Floats, labels: Labels) -> None:
    columns = {feature.name: pa.array(rows[:, i]) for i, feature in enumerate(schema.features)}
    columns[LABEL] = pa.array((labels > 0).astype(np.int8))
    pq.write_table(pa.table(columns), path, compression="none")


def _replace(file: Path, old: str, new: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert old in text, f"{file} was to have {old}"
    file.write_text(text.replace(old, new), encoding="utf-8")
