"""The kit's run against one party: everything that is tried, in order."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dpcore.paillier.public import MINIMUM_BITS
from dpcore.paillier.secret import SecretKey
from dpcore.randomness.sources import SystemRandom
from learner.decryption import LearnerKey
from radobase.reading import FileKind, read_bytes, with_remedy
from radobase.writing import write_durably
from radofed.conformance import party_bad, party_good
from radofed.conformance.findings import Finding, Findings
from radofed.conformance.kit import Kit
from radofed.conformance.party_good import Trial
from radofed.conformance.play import Asking
from radofed.conformance.stage import Stage
from wire.envelopes import Envelope

CASES: tuple[Callable[[Trial], None], ...] = (
    party_good.kinds,
    party_good.repeats,
    party_good.tries_again,
    party_good.questions,
    party_good.optional_features,
    party_good.witnesses,
    party_bad.refuses_queries,
    party_bad.keeps_silent,
    party_bad.keeps_to_its_policy,
    party_bad.refuses_attempts,
    party_bad.refuses_cohorts,
    party_bad.keeps_its_budget,
    party_bad.refuses_rosters,
    party_bad.stops_at_a_conflict,
)
"""The last ones use up the budget, leave the party a roster newer than the kit's, and may stop it."""


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
    kit: Kit, times: Times, on_each: Callable[[Finding], None] = lambda _: None, *, set_back: bool = False
) -> Findings:
    """Serve until everything is tried. Raises ConfigurationError if the address cannot be listened on.

    set_back: whether the party has lost the ledger of a former run of this kit, and nothing else is tried.
    """
    findings = Findings(on_each)
    key = LearnerKey(SecretKey.generate(SystemRandom(), bits=MINIMUM_BITS), int(time.time()))
    newest = kit.directory / _NEWEST
    with Stage(kit) as stage:
        trial = Trial(kit, stage, Asking(kit, key), findings, times.patience_s, times.quiet_s)
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
        for case in CASES:
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
