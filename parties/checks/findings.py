"""Findings of `rado party check`, and what later checks need of earlier ones."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from dpcore.errors import RadofedError
from dpcore.records.schema import Schema
from parties.client import CoordinatorClient
from parties.config import PartyConfig
from parties.data.dataset import LoadReport
from parties.policy import Policy
from parties.probe import Served
from wire.envelopes import SigningKey
from wire.errors import WireError
from wire.roster import Roster


@dataclass(frozen=True)
class Finding:
    """Result of one check."""

    name: str
    ok: bool
    """The check passed; a `fix` that is not empty is then advice."""
    detail: str
    fix: str = ""
    """How to fix the problem."""
    ran: bool = True
    """False if the check did not run, because a check that it depends on failed."""

    @property
    def status(self) -> str:
        """One of "ok", "advice", "failed" and "not run"."""
        if not self.ran:
            return "not run"
        if not self.ok:
            return "failed"
        return "advice" if self.fix else "ok"


class CheckFailedError(RadofedError):
    """A problem that a check found, with its fix."""

    def __init__(self, detail: str, fix: str) -> None:
        self.detail, self.fix = detail, fix
        super().__init__(f"{detail}; {fix}")


@dataclass
class Run:
    """The checks in order, and the results that later checks need."""

    now: float | None
    findings: list[Finding] = field(default_factory=list)
    config: PartyConfig = field(init=False)
    policy: Policy = field(init=False)
    schema: Schema = field(init=False)
    signing_key: SigningKey = field(init=False)
    federation_key: bytes = field(init=False)
    roster: Roster = field(init=False)
    served: Served = field(init=False)
    rows: int = 0
    report: LoadReport = field(init=False)
    # Of the rows in the configured table; None if it could not be read.
    rows_digest: bytes | None = None
    # Names of failed checks that still produced what later checks need.
    provided: set[str] = field(default_factory=set)
    client: CoordinatorClient | None = None
    clock_ahead_s: float = 0.0

    def time(self) -> float:
        """Unix seconds."""
        return time.time() if self.now is None else self.now

    def add(self, name: str, detail: str, fix: str = "") -> None:
        """A check passed. fix: advice."""
        self.findings.append(Finding(name, True, detail, fix))

    def step(self, name: str, check: Callable[[], None], needs: tuple[str, ...] = ()) -> None:
        """Run a check, unless one that it needs has not passed."""
        passed = self.provided | {finding.name for finding in self.findings if finding.ok}
        missing = [need for need in needs if need not in passed]
        if missing:
            self.findings.append(Finding(name, False, f"it needs {', '.join(missing)}", ran=False))
            return
        try:
            check()
        except CheckFailedError as error:
            self.findings.append(Finding(name, False, error.detail, error.fix))
        except WireError as error:
            self.findings.append(Finding(name, False, error.public_sentence, error.hint))
        except RadofedError as error:
            self.findings.append(Finding(name, False, str(error), "Follow the message above, then check again."))
        except OSError as error:
            self.findings.append(Finding(name, False, str(error), "Check the path and its permissions."))
