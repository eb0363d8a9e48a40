"""Our own learner as the kit runs one: python own_learner.py LEARNER_TOML SCHEMA [BREAK]."""

import json
import os
import sys
import time
from fractions import Fraction
from pathlib import Path

from learner import decryption
from learner.config import LearnerConfig
from learner.requests import MomentsRequest, RadosRequest
from learner.session import Session
from radobase.schema_files import load_schema
from wire.statements import Acceptance
from wire.training import Training


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


def _that_verifies_no_shares() -> None:
    """It takes what members dealt and gave as it comes."""
    from learner import unmasking

    unmasking.open_statement = lambda kind, envelope, _: (kind.from_bytes(envelope.payload), None)


def _that_names_a_training_anew() -> None:
    """Each query of a training is of another one."""
    ANEW.append(True)


ANEW: list[bool] = []
BREAKS = {
    "that_verifies_no_shares": _that_verifies_no_shares,
    "that_names_a_training_anew": _that_names_a_training_anew,
    "that_checks_no_tag": _that_checks_no_tag,
    "that_verifies_no_cohort": _that_verifies_no_cohort,
    "with_another_unit": _with_another_unit,
}


def _new_training(schema) -> Training:
    now = int(time.time())
    digest, delta = schema.unweighted.digest, Fraction(1, 10**6)
    return Training(os.urandom(32), "newton", "", digest, Fraction(2), delta, 2, 3, now - 60, now + 3600)


KNOWN: list[Training] = []


def announced(schema) -> Training:
    if ANEW or not KNOWN:
        KNOWN[:] = [_new_training(schema)]
    return KNOWN[0]


def requests(schema, asks: str):
    """What is asked, one request after another."""
    terms = {"max_rows": 10_000}
    noisy = {**terms, "epsilon": Fraction(1)}
    match asks:
        case "dp-feat":
            sensitive = schema.boolean_coordinates[0]
            return [RadosRequest(schema, 20, design="dp-feat", sensitive=sensitive, **terms)]
        case "fixed-support":
            return [RadosRequest(schema, 20, design="fixed-support", **noisy)]
        case "persons":
            return [MomentsRequest(schema, unit="person", **noisy)]
        case "epoch":
            return [MomentsRequest(schema, epoch="2024-01", **noisy)]
        case "survivors":
            return [MomentsRequest(schema, may_vanish=1, **noisy)]
        case "training":
            return [
                MomentsRequest(schema, training=announced(schema), norm_bound=Fraction(bound), **noisy)
                for bound in (2, 3)
            ]
        case _:
            return [MomentsRequest(schema, **noisy)]


def main(config: str, schema: str, broken: str = "") -> None:
    if broken:
        BREAKS[broken]()
    asked = requests(load_schema(Path(schema)), os.environ.get("RADO_CONFORMANCE_ASK", ""))
    with Session(LearnerConfig.load(Path(config)), progress=False) as session:
        for request in asked:
            release = session.run(session.plan(request), retries=1)
        sys.stdout.write(json.dumps({"values": release.integers.ravel().tolist()}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
