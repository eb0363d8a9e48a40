"""What a query asks for, in words."""

from dpcore.accounting.noise_shares import LaplaceShares
from dpcore.predicates.notation import described
from dpcore.queries.gradient import GradientQuery
from dpcore.queries.moments import MomentsQuery
from dpcore.queries.rados import RadosQuery
from dpcore.queries.release_cost import Kind
from dpcore.queries.statistic import StatisticQuery
from dpcore.rados.designs import Design, DpFeatDesign, FixedSupportDesign, GaussianDesign, JointDesign, PlainDesign

_NAMED = 3


def kind_words(kind: Kind) -> str:
    """Such as "500 rados, dp-feat for 'smoker' without truncation"."""
    match kind:
        case MomentsQuery():
            return f"moments with records clipped to {float(kind.clip.norm_bound):.3g}"
        case StatisticQuery():
            return _statistic_words(kind)
        case GradientQuery():
            where = "" if kind.basis is None else " in a basis of the learner's"
            return f"the gradient of the {kind.loss} loss{where}, each record's clipped to {float(kind.clip):.3g}"
        case RadosQuery():
            return f"{kind.rados} rados, design {design_words(kind.design)}"


def _statistic_words(kind: StatisticQuery) -> str:
    law = "Laplace" if isinstance(kind.noise, LaplaceShares) else "Gaussian"
    named = "; ".join(described(predicate) for predicate in kind.predicates[:_NAMED])
    rest = len(kind.predicates) - _NAMED
    more = f"; and {rest} more" if rest > 0 else ""
    return f"{len(kind.predicates)} statistics with {law} noise: {named}{more}"


def design_words(design: Design) -> str:
    """A design with what it protects and how."""
    match design:
        case PlainDesign():
            return "plain"
        case DpFeatDesign(epsilon_per_rado=None):
            return f"dp-feat for {_features(design)} without truncation"
        case DpFeatDesign():
            return f"dp-feat for {_features(design)} at epsilon {float(design.epsilon_per_rado or 0):.3g} per rado"
        case JointDesign():
            return f"dp-feat jointly for the column {design.column!r}"
        case FixedSupportDesign():
            noise = "over a noised table" if design.edge_sigma else "without noise"
            return f"fixed-support with {float(design.fraction):.3g} of the records {noise}"
        case GaussianDesign():
            return f"gaussian with records clipped to {float(design.clip.norm_bound):.3g}"


def _features(design: DpFeatDesign) -> str:
    return ", ".join(repr(name) for name in design.names)
