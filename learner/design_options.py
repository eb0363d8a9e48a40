"""Which options each design accepts and requires: one table for queries, plans and simulations."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from dpcore.declared import values_of
from dpcore.errors import ConfigurationError
from dpcore.records.features import nearest
from wire.request_fields import DESIGNS, ReleaseFields

JOINT = "dp-feat with joint"


@dataclass(frozen=True)
class _Rules:
    """Options of a design."""

    takes: frozenset[str]
    """Options by name."""
    needs: tuple[tuple[str, ...], ...]
    """At least one of each group; the first of a group is named in the error."""


# share_sd, honest, source and bias are options of a plan only: it may state the noise instead of an epsilon.
_RULES = {
    "plain": _Rules(frozenset({"rados"}), (("rados",),)),
    "dp-feat": _Rules(
        frozenset({"rados", "sensitive", "rounded", "epsilon", "epsilon_per_rado", "split"}),
        (("rados", "epsilon"), ("sensitive",)),
    ),
    JOINT: _Rules(
        frozenset({"joint", "rados", "sensitive", "epsilon", "share_sd", "honest", "source"}),
        (("rados",), ("sensitive",), ("epsilon", "share_sd")),
    ),
    "fixed-support": _Rules(
        frozenset({"rados", "epsilon", "norm_bound", "support", "split", "share_sd", "bias", "feature_map"}),
        (("rados",),),
    ),
    "gaussian": _Rules(
        frozenset({"rados", "epsilon", "norm_bound", "support", "share_sd", "honest", "bias", "feature_map"}),
        (("rados",), ("epsilon", "share_sd")),
    ),
    "moments": _Rules(
        frozenset({"epsilon", "norm_bound", "edge_weight", "share_sd", "honest", "bias", "feature_map"}),
        (("epsilon", "share_sd"),),
    ),
}

OPTIONS = tuple(sorted(frozenset().union(*(rules.takes for rules in _RULES.values()))))
"""All options of any design, sorted."""

_MISSING = {
    "rados": ("{design} needs the number of rados; only dp-feat without joint chooses it, to stay within an epsilon"),
    "sensitive": "{design} needs a sensitive feature",
    "epsilon": "{design} adds noise: give the epsilon that the release must stay within",
}


def given_options(asked: ReleaseFields) -> dict[str, Any]:
    """The options of a design that are set, by name."""
    names = {"sensitive": asked.sensitive_names, "rounded": asked.rounded_names}
    given = {**values_of(asked, ReleaseFields), **names}
    # By identity: 0 equals False, but is a value that was given.
    set_ = {name: value for name, value in given.items() if value is not None and value is not False and value != ()}
    return {name: value for name, value in set_.items() if name in OPTIONS}


def taken_options(design: str, *, joint: bool = False) -> frozenset[str]:
    """The options that a design takes; none if it is unknown."""
    rules = _RULES.get(JOINT if joint else design)
    return frozenset() if rules is None else rules.takes


def check_options(
    design: str, given: Mapping[str, Any], *, chosen: Collection[str] = (), hints: Mapping[str, str] | None = None
) -> None:
    """Raise ConfigurationError if the design is unknown, does not accept an option, or a required option is missing.

    given: the options that are set, by name, with their values. chosen: options that are not required here, because
    they follow from others or are checked elsewhere. hints: text to append to the error about a missing option.
    """
    if design not in DESIGNS:
        raise ConfigurationError(f"no design is called {design!r}; {nearest(design, DESIGNS)}")
    words = JOINT if design == "dp-feat" and "joint" in given else design
    rules = _RULES[words]
    for name in OPTIONS:
        if name in given and name not in rules.takes:
            known = _listed([other for other, others in _RULES.items() if name in others.takes])
            raise ConfigurationError(f"{words} takes no {_words(name)}: leave it out, or choose {known}")
    for name, *others in rules.needs:
        if name not in chosen and not {name, *others} & set(given):
            raise ConfigurationError(_MISSING[name].format(design=words) + (hints or {}).get(name, ""))
    if "joint" in given and len(given.get("sensitive", ("",))) != 1:
        raise ConfigurationError("joint dp-feat protects a single source column; give exactly one as sensitive")


def _words(name: str) -> str:
    return name.replace("_", " ")


def _listed(names: Collection[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last
