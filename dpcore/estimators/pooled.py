"""One sample from the releases of several epochs, whose rows are different rows: what an update adds up.

Moments of different rows add up to those of all of them.

So do rados: if pi_1 is a uniform draw from the rados of S_1,
and pi_2, independently, from those of S_2, then pi_1 + pi_2 is one from the rados of both, because a signature of both
is a pair of one of each (Nock, Patrini and Friedman, ICML 2015, Definition 1).

The noise adds up too, and all of it is post-processing. Their section 8 names on-line learning as a use.

With a forgetting factor f, the epoch k before the last counts f^k: what has changed since is forgotten.
"""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from dpcore.errors import ConfigurationError
from dpcore.estimators.base import RadoSample
from dpcore.rados.distribution import CentralCount, Moments, RadoDistribution


def check_forgetting(forgetting: Fraction) -> None:
    """Raise ConfigurationError unless it is above 0 and at most 1."""
    if not 0 < forgetting <= 1:
        raise ConfigurationError(f"the forgetting factor is {float(forgetting):g}: choose one above 0 and at most 1")


def pooled_moments(epochs: Sequence[Moments], forgetting: Fraction = Fraction(1)) -> Moments:
    """The moments of all rows, those of the epoch k before the last weighted by forgetting^k.

    epochs: oldest first. Weights are scaled so that the weighted number of rows is an integer: within 1 / (2 rows) of
    what was asked. Raises ConfigurationError if the epochs' sums are of different records, by number, bias or norm.
    """
    check_forgetting(forgetting)
    if len({(each.d, each.bias, each.norm_bound) for each in epochs}) != 1:
        raise ConfigurationError("the epochs' moments have another size, bias or clipping norm: ask them alike")
    weights = np.array([float(forgetting) ** k for k in reversed(range(len(epochs)))])
    weighted = float(weights @ [each.rows for each in epochs])
    rows = max(1, round(weighted))
    weights *= rows / weighted
    pairs = list(zip(weights, epochs, strict=True))
    return Moments(
        edge_sum=np.sum([weight * each.edge_sum for weight, each in pairs], axis=0),
        product_sum=np.sum([weight * each.product_sum for weight, each in pairs], axis=0),
        rows=rows,
        bias=epochs[0].bias,
        norm_bound=epochs[0].norm_bound,
        edge_noise=float(np.sqrt(sum((weight * each.edge_noise) ** 2 for weight, each in pairs))),
        product_noise=np.sqrt(np.sum([(weight * each.product_noise) ** 2 for weight, each in pairs], axis=0)),
    )


def pooled_rados(epochs: Sequence[RadoSample]) -> RadoSample:
    """Rados of all rows: as many as the epoch with the fewest has, each the sum of one rado of each epoch.

    Raises ConfigurationError if the epochs' rados were drawn differently, or with a fixed support, whose sums are no
    draws of one support over all rows.
    """
    drawn = [each.distribution for each in epochs]
    if len({(each.rados.shape[1], each.bias) for each in epochs}) != 1:
        raise ConfigurationError("the epochs' rados have another size or bias: ask them alike")
    first = drawn[0]
    roundings = {None if each.rounding is None else tuple(each.rounding.tolist()) for each in drawn}
    if any(each.inclusion != first.inclusion or each.fixed_support for each in drawn) or len(roundings) > 1:
        raise ConfigurationError(
            "rados add up if all epochs draw from all signatures, with the same probability and rounding: ask them "
            "alike, or ask moments"
        )
    count = min(len(each.rados) for each in epochs)
    total = np.sum([each.rados[:count] for each in epochs], axis=0)
    rows = [each.rows for each in epochs]
    noise = [each.rado_noise for each in drawn if each.rado_noise is not None]
    distribution = RadoDistribution(
        inclusion=first.inclusion,
        rado_noise=np.sum(noise, axis=0) if noise else None,
        rounding=first.rounding,
        central=_central([each.central for each in drawn], rows),
    )
    return replace(epochs[0], rados=total, rows=sum(rows), distribution=distribution)


def _central(counts: Sequence[CentralCount | None], rows: Sequence[int]) -> CentralCount | None:
    """The truncation of all epochs: each draws for itself, as parties do, and is averaged by its rows as they are."""
    known = [each for each in counts if each is not None]
    if not known:
        return None
    if len({each.coordinate for each in known}) > 1:
        raise ConfigurationError("the epochs' rados are truncated by different features: ask them alike")
    averaged = sum(each.correlation * m for each, m in zip(counts, rows, strict=True) if each is not None) / sum(rows)
    return CentralCount(known[0].coordinate, averaged)
