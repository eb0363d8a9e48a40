"""The kit's run against one party: everything that is tried, in order."""

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from dpcore.errors import ConfigurationError
from dpcore.paillier.public import MINIMUM_BITS
from dpcore.paillier.secret import SecretKey
from dpcore.randomness.sources import SystemRandom
from learner.decryption import LearnerKey
from radobase.reading import FileKind, read_bytes, with_remedy
from radobase.writing import write_durably
from radofed.conformance import party_bad, party_good, party_optional, party_vanishing
from radofed.conformance.findings import Finding, Findings
from radofed.conformance.kit import Kit
from radofed.conformance.party_good import Trial
from radofed.conformance.play import Asking
from radofed.conformance.stage import Stage
from wire.envelopes import Envelope

CASES: Mapping[str, Callable[[Trial], None]] = {
    "kinds": party_good.kinds,
    "repeats": party_good.repeats,
    "attempts": party_good.tries_again,
    "questions": party_good.questions,
    "noise-and-masks": party_good.optional_features,
    "witnesses": party_good.witnesses,
    "rados": party_optional.rados,
    "persons": party_optional.persons,
    "epochs": party_optional.epochs,
    "trainings": party_optional.trainings,
    "survivors": party_vanishing.survivors,
    "bad-queries": party_bad.refuses_queries,
    "bad-signatures": party_bad.keeps_silent,
    "policy": party_bad.keeps_to_its_policy,
    "bad-attempts": party_bad.refuses_attempts,
    "bad-cohorts": party_bad.refuses_cohorts,
    "budget": party_bad.keeps_its_budget,
    "rosters": party_bad.refuses_rosters,
    "conflict": party_bad.stops_at_a_conflict,
}
"""By part. The last ones use up the budget, leave the party a roster newer than the kit's, and may stop it."""
FIRST = "kinds"
"""Played in every run: what follows asks a kind that the party computes."""


@dataclass(frozen=True)
class Times:
    """How long the kit waits, in seconds."""

    start_s: float = 600.0
    """For the party to connect."""
    patience_s: float = 30.0
    """For what must happen."""
    quiet_s: float = 3.0
    """For what must not happen: a party that is slower than this may do it unseen."""


def try_party(
    kit: Kit,
    times: Times,
    on_each: Callable[[Finding], None] = lambda _: None,
    *,
    set_back: bool = False,
    approve: str = "",
    only: Collection[str] = (),
) -> Findings:
    """Serve until everything is tried. Raises ConfigurationError if the address cannot be listened on.

    set_back: whether the party has lost the ledger of a former run of this kit, and nothing else is tried. approve: see
    `Trial`. only: parts of CASES to be played; none for all.
    """
    if unknown := sorted(set(only) - set(CASES)):
        raise ConfigurationError(f"the kit has no part {unknown[0]!r}; its parts are {', '.join(CASES)}")
    findings = Findings(on_each)
    key = LearnerKey(SecretKey.generate(SystemRandom(), bits=MINIMUM_BITS), int(time.time()))
    newest = kit.directory / _NEWEST
    with Stage(kit) as stage:
        trial = Trial(kit, stage, Asking(kit, key), findings, times.patience_s, times.quiet_s, approve=approve)
        if set_back:
            stage.newest = _seen(newest)
            if party_good.starts(trial, times.start_s):
                party_bad.stops_if_set_back(trial)
            return findings
        stage.withholds_witnesses = True
        if not party_good.starts(trial, times.start_s):
            return findings
        party_good.waits_for_witnesses(trial)
        stage.withholds_witnesses = False
        for name, case in CASES.items():
            if only and name not in (FIRST, *only):
                findings.add("7", f"the part {name}", passed=None, detail="it is not among the parts of --only")
                continue
            case(trial)
            if not trial.kinds:
                findings.add("6", "it computes a kind of query", passed=False, detail="nothing further can be tried")
                break
        if trial.newest is not None:
            write_durably(newest, trial.newest.to_bytes())
    return findings


_NEWEST = "newest.signed"
"""The acceptance with the most ledger entries of the last run, in the kit's directory."""
_FILE = FileKind(with_remedy("run the kit once without --set-back, to its end"), limit_bytes=1 << 16)


def _seen(file: Path) -> Envelope:
    """The acceptance of a former run. Raises ConfigurationError if there is none."""
    if not file.exists():
        raise _FILE.error(file, "is not there, so no acceptance with a ledger head has been seen")
    return Envelope.from_bytes(read_bytes(file, _FILE))
