"""Rules of the protocol that were missing once, or that a careless change would drop, and who gains by each."""

from dataclasses import dataclass

from dpcore.research.who_learns_what.choices import Setting
from dpcore.research.who_learns_what.protocol import Protocol


@dataclass(frozen=True)
class Fault:
    """A rule that is left out."""

    words: str
    """Its absence."""
    protocol: Protocol
    by: Setting
    """The smallest coalition that gains."""
    rule: str
    """What prevents it."""


_LEARNER = Setting.of(3, 1, 0, learner=True)
_BOTH = Setting.of(3, 1, 0, learner=True, coordinator=True)
_COORDINATOR = Setting.of(3, 1, 0, coordinator=True)

FAULTS: dict[str, Fault] = {
    "unequal seeds": Fault(
        "the learner seals different seeds to two parties",
        Protocol(commits_seeds=False),
        _LEARNER,
        "the commitment in the signed query",
    ),
    "no tag": Fault("totals without a tag", Protocol(has_tag=False), _COORDINATOR, "the tag"),
    "dropped mask": Fault(
        "tags are not masked", Protocol(masks_tags=False), _BOTH, "masks on all plaintexts, between all pairs"
    ),
    "pad used twice": Fault(
        "a member's pad is the same in two attempts",
        Protocol(pads_name_attempt=False),
        Setting.of(4, 1, 1, coordinator=True),
        "pads that are derived from a fresh mask key for query, attempt and cohort",
    ),
    "seed for outsiders": Fault(
        "the learner seals the seed to parties that it did not accept",
        Protocol(seeds_for_roster=True),
        Setting.of(3, 1, 0, coordinator=True, outsider=True),
        "seeds for accepted parties only",
    ),
    "masks used twice": Fault(
        "a lost attempt is repeated with the same masks",
        Protocol(masks_name_attempt=False),
        _BOTH,
        "a fresh mask key for each attempt, whose number is in the derivation",
    ),
}
