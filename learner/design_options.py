"""Which options each design accepts and requires: one table for queries, plans and simulations."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dpcore.errors import ConfigurationError
from dpcore.records.features import nearest
from wire.query import PURPOSE_RULE, is_purpose

JOINT = "dp-feat with joint"


@dataclass(frozen=True)
class _Rules:
    """takes: options by name. needs: at least one of each group; the first of a group is named in the error."""

    takes: frozenset[str]
    needs: tuple[tuple[str, ...], ...]


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

DESIGNS = tuple(name for name in _RULES if name != JOINT)
"""All names of designs; "moments" has no rados."""

OPTIONS = tuple(sorted(frozenset().union(*(rules.takes for rules in _RULES.values()))))
"""All options of any design, sorted."""

_MISSING = {
    "rados": ("{design} needs the number of rados; only dp-feat without joint chooses it, to stay within an epsilon"),
    "sensitive": "{design} needs a sensitive feature",
    "epsilon": "{design} adds noise: give the epsilon that the release must stay within",
}


def given_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are set, by name."""
    # By identity: 0 equals False, but is a value that was given.
    given = {name: value for name, value in options.items() if value is not None and value is not False}
    return {name: value for name, value in given.items() if value not in ((), "local")}


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


def check_figures(figures: Mapping[str, Fraction | None]) -> None:
    """Raise ConfigurationError if a figure is not a positive fraction. figures: by name, None if not set."""
    for name, value in figures.items():
        if value is None:
            continue
        if not isinstance(value, Fraction):
            raise ConfigurationError(f"{name} must be an exact fraction: write Fraction('1e-6'), not 1e-6")
        if value <= 0:
            raise ConfigurationError(f"{_words(name)} is {plain_number(value)}: make it positive, or leave it out")


def check_purpose(purpose: str) -> None:
    """Raise ConfigurationError if a text can be no purpose. Empty: there is none."""
    if purpose and not is_purpose(purpose):
        raise ConfigurationError(f"{PURPOSE_RULE}: write it so, or leave it out")


def given_purpose(option: str | None) -> str:
    """The purpose that an option states; empty if the option is left out.

    Raises ConfigurationError if it can be none, also if it is empty: a shell's variable may not be set.
    """
    check_purpose(" " if option == "" else option or "")
    return option or ""


def check_delta(delta: Fraction, least: Fraction = Fraction(0)) -> None:
    """Raise ConfigurationError if delta is not between 0 and 1, or is below `least`."""
    if not 0 < delta < 1 or delta < least:
        said = f"below {float(least):g}" if 0 < delta < least else plain_number(delta)
        raise ConfigurationError(f"delta is {said}: choose a number between 0 and 1, such as 1e-6")


def plain_number(number: Fraction) -> str:
    """A number in decimal notation, or words if a double cannot represent it."""
    try:
        return f"{float(number):.6g}"
    except OverflowError:
        return "out of any range"


def _words(name: str) -> str:
    return name.replace("_", " ")


def _listed(names: Collection[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last
