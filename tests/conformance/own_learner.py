"""Our own learner as the kit runs one: python own_learner.py LEARNER_TOML SCHEMA [BREAK]."""

import json
import sys
from fractions import Fraction
from pathlib import Path

from learner import decryption
from learner.config import LearnerConfig
from learner.requests import MomentsRequest
from learner.session import Session
from radobase.schema_files import load_schema
from wire.statements import Acceptance


def _that_checks_no_tag() -> None:
    decryption.check_tag = lambda *_: None


def _that_verifies_no_cohort() -> None:
    """A client of the good half only: it decrypts whatever comes."""
    decryption._verified = lambda total, opened, roster: tuple(
        Acceptance.from_bytes(each.payload) for each in total.cohort.acceptances
    )
    Session._fresh_roster_for = lambda self, total, asked, opened: asked.roster


def _with_another_unit() -> None:
    """It prints half of each value."""
    decryption.packing.open_total = _halved(decryption.packing.open_total)


def _halved(real):
    def opened(*arguments, **named):
        return real(*arguments, **named) // 2

    decryption.check_tag = lambda *_: None
    return opened


BREAKS = {
    "that_checks_no_tag": _that_checks_no_tag,
    "that_verifies_no_cohort": _that_verifies_no_cohort,
    "with_another_unit": _with_another_unit,
}


def main(config: str, schema: str, broken: str = "") -> None:
    if broken:
        BREAKS[broken]()
    request = MomentsRequest(load_schema(Path(schema)), epsilon=Fraction(1), max_rows=10_000)
    with Session(LearnerConfig.load(Path(config)), progress=False) as session:
        release = session.run(session.plan(request), retries=1)
        sys.stdout.write(json.dumps({"values": release.integers.ravel().tolist()}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
