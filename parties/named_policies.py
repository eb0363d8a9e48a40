"""Policies to start from, each with a name: what one answers at once, what it asks people about, what it refuses."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from parties.policy import Policy

_EVERY_BOUND = ("statistic", "local-statistic", "moments", "gradient", "gaussian", "fixed-support")
_UNPROTECTED = ("plain", "dp-feat", "dp-feat-joint")
"""Designs that leave whole records unprotected."""


@dataclass(frozen=True)
class NamedPolicy:
    """A policy without its members: `rado party policy` adds them."""

    name: str
    """As in the command, and of its page in docs/policies."""
    title: str
    summary: str
    """Whom it is for, and what it means, in a few sentences."""
    settings: Mapping[str, Any]
    """Keys of `policy.toml` and their values."""

    @property
    def policy(self) -> Policy:
        """The policy of a party without other members."""
        return Policy.model_validate(dict(self.settings))


_LIMITS = {"epsilon": "10", "delta": "1e-5", "composition": "renyi"}
"""Statistics have Laplace noise: in Gaussian differential privacy an answer of epsilon 0.2 would cost 0.93."""

NAMED = (
    NamedPolicy(
        "public-statistics",
        "Public statistics",
        "For a party that publishes figures about its rows, and lets no one train a model. Small statistics are "
        "answered at once. A learner whose answers add up to epsilon 0.5 waits for people. In any 24 hours at most "
        "epsilon 1 is spent, and 3 over the lifetime of the data.",
        {
            "designs": ["statistic"],
            "purpose_required": True,
            "limits": {**_LIMITS, "epsilon": "3", "per_day": {"epsilon": "1", "delta": "1e-5"}},
            "approval": {"epsilon_at_least": "0.5"},
        },
    ),
    NamedPolicy(
        "research-within-epsilon-1",
        "Research within epsilon 1",
        "For a party that takes part in research on one data set. Statistics and trainings that protect whole records "
        "are answered at once, and nobody is asked. All answers to all learners, ever, cost at most epsilon 1. What "
        "would exceed that is refused. Count on one training of epsilon 1 at delta 1e-6 and its evaluation at 0.1, or "
        "on four tables or curves of epsilon 0.1: their Laplace noise counts for more than a training's Gaussian noise "
        "here.",
        {
            "designs": ["statistic", "moments", "gradient", "gaussian"],
            "purpose_required": True,
            "limits": {**_LIMITS, "epsilon": "1", "composition": "gaussian"},
        },
    ),
    NamedPolicy(
        "ask-me-always",
        "Ask me always",
        "For a party whose data officer decides on everything. Every query waits for a person, who sees what it asks, "
        "what for, and what it costs. An approval may be for one query, for a whole training, for a study, or for a "
        "list of questions. Over the lifetime of the data at most epsilon 10 is spent, with or without an approval.",
        {
            "designs": list(_EVERY_BOUND),
            "purpose_required": True,
            "limits": dict(_LIMITS),
            "approval": {"everything": True},
        },
    ),
    NamedPolicy(
        "closed",
        "Closed",
        "For a party that answers nothing: before it begins, after a study ended, or while something is examined. "
        "Every query is refused, and nothing can be spent. The node stays a member, and confirms others' ledgers.",
        {"designs": [], "limits": {"epsilon": "0", "delta": "0"}},
    ),
)


@dataclass(frozen=True)
class Function:
    """What a learner does, with the designs of the queries that it asks."""

    words: str
    commands: str
    designs: tuple[str, ...]


FUNCTIONS = (
    Function(
        "Counts, shares, means, quantiles, histograms, cross tables, comparisons, survival curves",
        "statistic, describe, histogram, quantiles, crosstab, compare, survival",
        ("statistic",),
    ),
    Function("The quality of a model, measured on rows", "evaluate", ("statistic",)),
    Function("Statistics whose answers each record flips at its party", "statistic --local", ("local-statistic",)),
    Function("Moments of all columns: correlations, linear models", "query --design moments", ("moments",)),
    Function("Training in several rounds: newton, additive, hazards", "train", ("moments", "gradient", "statistic")),
    Function("Rados with noise on their sums", "query --design gaussian", ("gaussian",)),
    Function("Rados over a table with noise", "query --design fixed-support", ("fixed-support",)),
    Function("Rados that leave whole records unprotected", "query --design plain or dp-feat", _UNPROTECTED),
)
"""What is asked of a party, for the tables of levels."""

AT_ONCE, ASKS, REFUSED = "answered at once", "asks people", "refused"


def level_of(policy: Policy, design: str) -> str:
    """What becomes of a query of a design that keeps within the limits: AT_ONCE, ASKS or REFUSED.

    A party also refuses what lacks a purpose that it requires, and what exceeds its budget. By cost it asks people for
    what would otherwise be answered at once (`asks_from`).
    """
    rules = policy.approval
    is_protected = design not in _UNPROTECTED or policy.allow_unprotected
    if design not in policy.designs or not is_protected:
        return REFUSED
    asks = rules.everything or design in rules.designs
    return ASKS if asks else AT_ONCE


def asks_from(policy: Policy) -> str:
    """From which sum of epsilons on people are asked, as the policy writes it; empty if cost does not matter."""
    least = policy.approval.epsilon_at_least
    return "" if least is None else f"{float(least):g}"


def levels(policy: Policy) -> list[tuple[Function, str]]:
    """The table of functions by level: of each the strictest level of its designs, in words."""
    found = []
    for function in FUNCTIONS:
        each = {level_of(policy, design) for design in function.designs}
        level = next(one for one in (REFUSED, ASKS, AT_ONCE) if one in each)
        if level == AT_ONCE and (least := asks_from(policy)):
            level = f"{AT_ONCE}; {ASKS} once a learner's answers since its last approval add up to epsilon {least}"
        found.append((function, level))
    return found


def named(name: str) -> NamedPolicy | None:
    """The policy of this name, or None."""
    return next((each for each in NAMED if each.name == name), None)
