"""A federation of the demo: provision it, give the parties their rows, start and stop its nodes."""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from dpcore.records.schema import Schema
from radofed.demo.processes import ChildError, Children, has_content, wait_for
from radofed.demo.tables import DemoData
from radofed.provision import Provisioned, provision
from radofed.templates import PolicyChoices
from wire.roster import Role

NAME = "demo"
KEY_BITS = 3072
START_WITHIN_S = 60.0
# Port 0: the operating system chooses the port; the coordinator writes the address into its state directory.
ANY_PORT = "127.0.0.1:0"

Note = Callable[[str], None]
"""Progress callback `(sentence)`."""


@dataclass
class Clock:
    """Measures the seconds of phases; a phase that is entered again adds up."""

    phases_s: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the duration of the block to the phase `name`."""
        start = time.monotonic()
        yield
        self.phases_s[name] = self.phases_s.get(name, 0.0) + time.monotonic() - start


@dataclass(frozen=True)
class Shared:
    """The tables of a federation's parties."""

    data: DemoData
    schema: Path
    """Their common file."""
    rows: dict[str, int]
    """Number of rows, by party name."""

    @classmethod
    def of(cls, data: DemoData) -> "Shared":
        """Count the parties' rows and write the schema file next to them."""
        schema = data.test.with_name("schema.toml")
        schema.write_text(data.schema.to_toml(), encoding="utf-8")
        return cls(data, schema, {name: _count_rows(file, data.schema) for name, file in data.parties.items()})

    def rows_words(self) -> str:
        """The parties with their numbers of rows, as text."""
        return ", ".join(f"{name} {count}" for name, count in self.rows.items())


@dataclass(frozen=True)
class RunningFederation:
    """A running federation."""

    children: Children
    config: Path
    """The learner's configuration file."""


@contextmanager
def running_federation(
    directory: Path, shared: Shared, policy: PolicyChoices, clock: Clock, note: Note
) -> Iterator[RunningFederation]:
    """Provision a federation in `directory` and run its nodes as processes until the block ends.

    All processes have ended when this returns. Raises ChildError if a node fails, after it notes the end of every log.
    """
    with Children(directory / "logs") as children:
        try:
            with clock.phase("data and keys"):
                made = _provisioned(directory, shared, policy)
                (learner,) = made.of(Role.LEARNER)
                note(f"making the learner's {KEY_BITS}-bit Paillier key")
                children.run("keygen", "learner", "keygen", "--config", str(learner.config), "--bits", str(KEY_BITS))
            with clock.phase("starting nodes"):
                _start(made, children, note)
            yield RunningFederation(children, learner.config)
            children.check()
        except ChildError:
            note(children.logs_of_all())
            raise


def _count_rows(file: Path, schema: Schema) -> int:
    from parties.data.dataset import check  # noqa: PLC0415  (the demo acts as each party here)

    return check(schema, file).rows


def _provisioned(directory: Path, shared: Shared, policy: PolicyChoices) -> Provisioned:
    """Make keys, roster and configurations, and copy schema and rows to every party."""
    made = provision(
        directory / "federation",
        federation=NAME,
        coordinator_address=ANY_PORT,
        parties=tuple(shared.rows),
        rows_at_least=shared.rows,
        policy=policy,
    )
    for member in made.of(Role.PARTY):
        source = shared.data.parties[member.name]
        shutil.copy(shared.schema, member.directory / "schema.toml")
        shutil.copy(source, member.directory / f"data{source.suffix}")
        _replace(member.config, '"data.csv"', f'"data{source.suffix}"')
    return made


def _start(made: Provisioned, children: Children, note: Note) -> None:
    (coordinator,) = made.of(Role.COORDINATOR)
    address_file = coordinator.directory / "state" / "address"
    children.start("coordinator", "coordinator", "start", "--config", str(coordinator.config))
    wait_for("coordinator", lambda: has_content(address_file), children, START_WITHIN_S)
    address = address_file.read_text(encoding="utf-8").strip()
    note(f"coordinator at {address}, mutual TLS; starting {len(made.of(Role.PARTY))} parties and the learner")
    for member in made.members:
        if member.role is not Role.COORDINATOR:
            _replace(member.config, f'"{ANY_PORT}"', f'"{address}"')
    for member in made.of(Role.PARTY):
        children.start(member.name, "party", "start", "--config", str(member.config))


def _replace(file: Path, old: str, new: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert old in text, f"{file} has no {old}"
    file.write_text(text.replace(old, new), encoding="utf-8")
