"""The options of a simulation: what they mean together, and which are refused."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dpcore.errors import ConfigurationError
from dpcore.numbers.rationals import exact_number, within_doubles
from dpcore.paillier.public import MAXIMUM_BITS, MINIMUM_BITS
from dpcore.records.held_back import HeldBack
from radofed.simulation.designs import DesignOptions, given_words
from radofed.simulation.evaluation import asks, from_release
from radofed.simulation.held_back import HoldBack
from radofed.simulation.limits import MOST_PARTIES, check_parties
from radofed.simulation.partitions import Partition
from radofed.simulation.source import Budget

TIMEOUT_S = 3600.0
KEY_BITS = 3072
_LARGEST_SEED = 2**32 - 1


@dataclass(frozen=True)
class SimulationOptions:
    """The options of a simulation.

    parties: K, 2 to 1,000. design: of the releases, None if no estimator learns from one. budget: of each estimator
    that queries, None if none does. folds: F, at least 2, stratified by class. seed: of folds, partition and every
    draw of the parties. encrypt: whether contributions are encrypted and masked, under a key of `key_bits`. workers:
    Ray actors that share the parties; 0 computes in this process; None is one for each CPU. timeout_s: for each answer
    of an actor. hold_back: what parties hold back, None if nothing. Raises ConfigurationError if one is out of range.
    """

    parties: int
    partition: Partition
    design: DesignOptions | None
    budget: Budget | None = None
    folds: int = 10
    seed: int = 0
    encrypt: bool = False
    key_bits: int = KEY_BITS
    workers: int | None = None
    timeout_s: float = TIMEOUT_S
    hold_back: HoldBack | None = None

    def __post_init__(self) -> None:
        if self.design is None and self.budget is None:
            raise ConfigurationError(
                "the simulation has no query: give a design, or a budget for estimators that query"
            )
        check_parties(self.parties)
        ranges = {
            "folds": (self.folds, 2, 1000),
            "seed": (self.seed, 0, _LARGEST_SEED),
            "workers": (0 if self.workers is None else self.workers, 0, MOST_PARTIES),
        }
        for name, (value, least, most) in ranges.items():
            if not least <= value <= most:
                raise ConfigurationError(f"{name} is {value}: choose {least} to {most}")
        if not MINIMUM_BITS <= self.key_bits <= MAXIMUM_BITS:
            raise ConfigurationError(f"a key of {self.key_bits} bits: choose {MINIMUM_BITS} to {MAXIMUM_BITS}")
        if not self.timeout_s > 0:
            raise ConfigurationError(f"timeout_s is {self.timeout_s}: give a positive number of seconds")

    @property
    def actors(self) -> int:
        """The number of Ray actors."""
        return (os.cpu_count() or 1) if self.workers is None else self.workers

    @property
    def training_part(self) -> HeldBack | None:
        """The part of the rows that estimators are trained on; None for all."""
        return None if self.hold_back is None else self.hold_back.training


def usual_estimator(
    shared: Mapping[str, Any], epsilon: Fraction | float | str | None, *, mapped: bool
) -> tuple[str, Fraction | float | str | None]:
    """The estimator to try if none is named, and its epsilon: one that protects records, unless a release is described.

    shared: options of `DesignOptions`. mapped: whether a feature map is given, which is of a release, too.
    """
    if mapped or given_words(shared):
        return "mean-variance", epsilon
    return "newton", Fraction(1) if epsilon is None else epsilon


def asked_of_a_federation(
    learners: Mapping[str, Any],
    shared: Mapping[str, Any],
    epsilon: Fraction | float | str | None,
    delta: Fraction | float | str,
) -> tuple[DesignOptions | None, Budget | None]:
    """The design, if an estimator learns from a release, and the budget, if an estimator queries.

    shared: options of `DesignOptions` except epsilon and delta. Raises ConfigurationError.
    """
    asking = [name for name, learner in learners.items() if asks(learner)]
    wanted = exact("epsilon", epsilon)
    budget = None
    if asking:
        if wanted is None:
            raise ConfigurationError(f"{', '.join(asking)}: queries need a budget, so give epsilon")
        budget = Budget(wanted, exact("delta", delta, zero=True) or Fraction(0))
    # Estimators of rows, such as adaboost, need no design, but on their own they have always had one.
    if not asking or any(map(from_release, learners.values())):
        given = {**shared, "name": shared["name"] or "plain"}
        return DesignOptions(**given, epsilon=wanted, delta=exact("delta", delta) or Fraction(0)), budget
    if unused := given_words(shared):
        raise ConfigurationError(
            f"{', '.join(asking)}: trained by queries, not on a design's release, so leave out {', '.join(unused)}, or "
            "name an estimator of releases too, such as mean-variance"
        )
    return None, budget


def exact(what: str, value: Fraction | float | str | None, *, zero: bool = False) -> Fraction | None:
    """A number as an exact fraction; a float counts as its shortest decimal.

    zero: whether 0 is allowed. Raises ConfigurationError if it is not a number, or not positive.
    """
    if value is None:
        return None
    try:
        found = value if isinstance(value, Fraction) else within_doubles(exact_number(str(value)))
    except OverflowError as error:
        raise ConfigurationError(f"{what} of {value!r} is too large or too small: write, say, 1e-6 or 1/2") from error
    except (ValueError, ZeroDivisionError) as error:
        raise ConfigurationError(f"{what} of {value!r} is not a finite number: write, say, 1e-6 or 1/2") from error
    if found < 0 or (found == 0 and not zero):
        raise ConfigurationError(f"{what} is {value}: it must be positive")
    return found
