"""Designs, and which options each accepts and requires: one table for queries, plans and simulations."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from dpcore.errors import ConfigurationError

USUAL_DESIGN = "moments"
"""It protects whole records, so a policy that lists it need not allow anything unprotected."""
DESIGNS = ("plain", "dp-feat", "fixed-support", "gaussian", "moments")
"""All names of designs; "moments" has no rados."""
AUTO = "auto"
"""In place of a design's name: moments or gaussian rados are chosen for the schema, the rows and epsilon."""
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
        (("rados", "epsilon"),),
    ),
    "gaussian": _Rules(
        frozenset({"rados", "epsilon", "norm_bound", "support", "share_sd", "honest", "bias", "feature_map"}),
        (("rados", "epsilon"), ("epsilon", "share_sd")),
    ),
    "moments": _Rules(
        frozenset(
            {
                "epsilon",
                "norm_bound",
                "edge_weight",
                "products_of_each_class",
                "share_sd",
                "honest",
                "bias",
                "feature_map",
            }
        ),
        (("epsilon", "share_sd"),),
    ),
    AUTO: _Rules(frozenset({"epsilon", "norm_bound", "honest", "bias", "feature_map"}), (("epsilon",),)),
}

OPTIONS = tuple(sorted(frozenset().union(*(rules.takes for rules in _RULES.values()))))
"""All options of any design, sorted."""

_MISSING = {
    "rados": (
        "{design} needs the number of rados; it follows from an epsilon for gaussian, fixed-support, and dp-feat "
        "without joint"
    ),
    "sensitive": "{design} needs a sensitive feature",
    "epsilon": "{design} adds noise: give the epsilon that the release must stay within",
}


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
    if design not in (*DESIGNS, AUTO):
        from dpcore.records.features import nearest  # noqa: PLC0415  (imports NumPy)

        raise ConfigurationError(f"no design is called {design!r}; {nearest(design, (*DESIGNS, AUTO))}")
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
