"""Our own party and learner join the kit's federation, as someone else's would: by a request and an admission."""

import json
import shlex
import shutil
import sys
from contextlib import contextmanager
from pathlib import Path

from tests.federation.processes import Forked, free_port, rado, run_rado
from tests.waiting import HANG_S


class Joining:
    """A member's directory and the kit's, under one root."""

    def __init__(self, root: Path, role: str) -> None:
        self.root, self.role = root, role
        self.home, self.kit = root / "home", root / "kit"
        self.address = f"127.0.0.1:{free_port()}"
        words = ("--federation", "trial", "--role", role, "--name", "tested")
        self.request = Path(rado("provision", "request", str(self.home), *words)["data"]["file"])

    def words(self, *more: str) -> tuple[str, ...]:
        return ("conformance", self.role, str(self.kit), str(self.request), "--listen", self.address, *more)

    def install(self) -> Path:
        """Prepare the kit's files and install them. Returns the directory that was handed over."""
        given = Path(rado(*self.words("--only-prepare"))["data"]["directory"])
        digits = digits_of(self.kit / "operator/federation.pub")
        admission = str(given / "tested.admission")
        rado("provision", "install", admission, "--directory", str(self.home), "--fingerprint", digits)
        for file in given.iterdir():
            shutil.copy(file, self.home / ("data.csv" if file.name == "rows.csv" else file.name))
        if self.role == "party":
            self._name_columns(json.loads((given / "members.json").read_text())["columns"])
        return given

    def _name_columns(self, columns: dict[str, str]) -> None:
        """Say in party.toml which columns have the ids and the epochs of rows."""
        lines = "".join(f'{what}_column = "{column}"\n' for what, column in columns.items())
        config = self.home / "party.toml"
        before, table, after = config.read_text().partition("\n[tls]\n")
        config.write_text(f"{before}\n{lines}{table}{after}")

    def approve(self) -> tuple[str, ...]:
        """The options with which the node's user approves the training of a query that waits."""
        rado = (sys.executable, "-m", "radofed", "party", "approve", "{query}", "--for", "training")
        return ("--approve", shlex.join((*rado, "--config", str(self.home / "party.toml"))))

    @contextmanager
    def node(self, function=run_rado, *arguments: str):
        """The party as a process, started as `rado party start`, or by another function."""
        config = str(self.home / "party.toml")
        words = (*arguments, config) if arguments else ("party", "start", "--config", config)
        process = Forked(function, words, self.root / "party.log")
        try:
            yield process
        finally:
            process.kill()
            process.wait(HANG_S)


def digits_of(public_key: Path) -> str:
    from wire.envelopes import load_public_key, spoken

    return spoken(load_public_key(public_key))


def outcomes(data: dict, outcome: str) -> list[tuple[str, str, str]]:
    """Section, what, and detail of the findings with this outcome."""
    return [(each["section"], each["what"], each["detail"]) for each in data["findings"] if each["outcome"] == outcome]
