"""Class weights: a training that counts the records of some classes more than those of others.

A gradient query multiplies clipped gradients by k_c / max k (dpcore.queries.gradient). Its mean over the m records is
that of a population in which a record of class c counts k_c times, times

    share = sum over classes of (k_c / max k) m_c / m,

by which `Weighing.answer` divides. The noise is divided too: where rare records count more, others tell less.

The counts m_c are those of the moments that a training asks first, so that nothing is asked or spent for weights. Rows
that are not usable count half to either of two classes, as in dpcore.estimators.moments_discriminant.

The moments of the weighted population follow from sums of the classes, if their records vary alike within a class:

    products = within + sum over classes of k_c s_c s_c^T / m_c,      s_c the sum of the records of a class,

`within` the rest of the products of all records. Everything is over n = (sum k_c m_c)^2 / sum k_c^2 m_c rows: a mean of
weighted records varies about as much as one of n records (Kish, Survey Sampling, 1965, section 8.2).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import gcd, lcm
from typing import Any, TypeVar

import numpy as np

from dpcore.errors import ConfigurationError
from dpcore.estimators.oracle import GradientEstimate
from dpcore.numbers.fixed_point import Matrix, Vector
from dpcore.queries.gradient import LARGEST_CLASS_WEIGHT
from dpcore.rados.distribution import ClassMoments, Moments
from dpcore.records.features import Classes, Label, Target, nearest
from dpcore.records.schema import Schema

BALANCED = "balanced"
CERTAIN = 3.0
"""A class whose rows are fewer than so many standard deviations of the noise on their number may have none."""

_NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
_NUMBER_IN_WORDS = "a number above 0 in plain digits, at most 9 before and 9 after the point"

Given = str | Mapping[str, Any] | None
"""`BALANCED`, or weights by class: as a text such as "positive=5", or as a mapping. Classes without one weigh 1."""

SomeMoments = TypeVar("SomeMoments", Moments, ClassMoments)


def class_names(label: Target) -> tuple[tuple[str, ...], ...]:
    """What each class may be called, in the order of weights. Raises ConfigurationError for a label without classes."""
    if isinstance(label, Classes):
        return tuple((value,) for value in label.values)
    if isinstance(label, Label):
        negative, positive = label.names
        return ("negative", negative), ("positive", positive)
    raise ConfigurationError(f"{label.column!r} is a label of {label.words}, without classes: leave class_weight out")


def checked_weights(given: Given, label: Target) -> tuple[int, ...] | None:
    """Whole numbers for the classes, none if all are alike; None for balanced ones, which need counts.

    Raises ConfigurationError if a class is unknown or named twice, a weight is no number above 0, or they differ by a
    factor above `LARGEST_CLASS_WEIGHT`.
    """
    if given is None:
        return ()
    names = class_names(label)
    if isinstance(given, str) and given.strip() == BALANCED:
        return None
    weights = [Fraction(1)] * len(names)
    named: dict[int, str] = {}
    for name, text in _pairs(given):
        places = [place for place, known in enumerate(names) if name in known]
        if not places:
            known = [called for each in names for called in each]
            raise ConfigurationError(f"class_weight names {name!r}, which is no class; {nearest(name, known)}")
        if not _NUMBER.fullmatch(text) or not (weight := Fraction(text)):
            raise ConfigurationError(f"class_weight of {name!r} is {text!r}: give {_NUMBER_IN_WORDS}, such as {name}=5")
        if places[0] in named:
            raise ConfigurationError(
                f"class_weight names one class twice, as {named[places[0]]!r} and {name!r}: give each class one weight"
            )
        named[places[0]], weights[places[0]] = name, weight
    return whole_weights(weights)


def check_asked(given: Given, schema: Schema) -> None:
    """Raise ConfigurationError, before anything is asked, if a training over this schema cannot have these weights."""
    if given is not None and checked_weights(given, schema.label) != () and not schema.bias:
        raise ConfigurationError(
            "class weights need a schema with a bias, whose sums count the classes: set bias, or leave them out"
        )


def _pairs(given: str | Mapping[str, Any]) -> list[tuple[str, str]]:
    if not isinstance(given, str):
        return [(str(name), str(weight)) for name, weight in given.items()]
    pairs = [part.rpartition("=") for part in given.split(",")]
    if not all(name and equals for name, equals, _ in pairs):
        raise ConfigurationError(
            f'class_weight is {given!r}: give "balanced", or weights by class, such as "positive=5"'
        )
    return [(name.strip(), weight.strip()) for name, _, weight in pairs]


def whole_weights(weights: Sequence[Fraction]) -> tuple[int, ...]:
    """The weights over a common unit, none if all are alike. Raises ConfigurationError if they differ too much."""
    common = lcm(*(weight.denominator for weight in weights))
    whole = [int(weight * common) for weight in weights]
    if max(whole) // gcd(*whole) > LARGEST_CLASS_WEIGHT:
        shares = [weight / max(weights) for weight in weights]
        whole = min(
            ([round(most * share) for share in shares] for most in range(1, LARGEST_CLASS_WEIGHT + 1)),
            key=lambda found: max(
                abs(each / (share * max(found)) - 1) for each, share in zip(found, shares, strict=True)
            ),
        )
    if min(whole) < 1:
        raise ConfigurationError(
            f"class weights differ by a factor of {float(max(weights) / min(weights)):.4g}: give weights that differ "
            f"by at most {LARGEST_CLASS_WEIGHT}"
        )
    least = gcd(*whole)
    return () if len(set(whole)) == 1 else tuple(weight // least for weight in whole)


@dataclass(frozen=True, eq=False)
class _ClassSums:
    """What a release of moments tells of the classes."""

    sums: Matrix
    """(classes, d), sums of their records."""
    deviation: float
    """Of the noise on a class's number of rows."""

    @classmethod
    def of(cls, moments: Moments | ClassMoments) -> "_ClassSums":
        if isinstance(moments, ClassMoments):
            return cls(moments.class_sums, moments.sum_noise)
        every = moments.product_sum[:, -1]
        return cls(np.array([every - moments.edge_sum, every + moments.edge_sum]) / 2.0, moments.edge_noise / 2.0)

    @property
    def counts(self) -> Vector:
        """(classes,), at least 1 and at least the noise's deviation."""
        return np.asarray(np.maximum(self.sums[:, -1], max(1.0, self.deviation)))

    @property
    def are_certain(self) -> bool:
        """Whether the noise leaves rows to every class."""
        return float(self.sums[:, -1].min()) >= max(1.0, CERTAIN * self.deviation)

    def hidden_in_words(self) -> str:
        """How little is known of the smallest class."""
        least, width = float(self.sums[:, -1].min()), CERTAIN * self.deviation
        return f"the noise hides how many rows the rarest class has (about {max(least, 0.0):.0f} +- {width:.0f})"


@dataclass(frozen=True, eq=False)
class Weighing:
    """The class weights of one training, and what follows from them. Without weights it changes nothing."""

    weights: tuple[int, ...] = ()
    """k; none if classes are not weighted."""
    share: float = 1.0
    note: str | None = None
    """What to know of them."""

    @property
    def asked(self) -> dict[str, Any]:
        """What a query for a gradient states of them."""
        return {"class_weights": self.weights} if self.weights else {}

    def answer(self, found: GradientEstimate) -> GradientEstimate:
        """The gradient of the weighted population."""
        if not self.weights:
            return found
        return replace(found, mean=found.mean / self.share, deviation=found.deviation / self.share)


def weigh(given: Given, label: Target, moments: SomeMoments) -> tuple[Weighing, SomeMoments]:
    """The weighing that was asked for, and the moments of the weighted population.

    Where the noise hides how many rows a class has, balanced weights are left out, and the moments stay as they are;
    the note says so. label, moments: as `check_asked` accepts them.
    """
    weights = checked_weights(given, label)
    if weights == ():
        return Weighing(), moments
    found = _ClassSums.of(moments)
    if weights is None and not found.are_certain:
        hidden = f"{found.hidden_in_words()}, so balanced weights are not known and the classes are not weighted"
        return Weighing(note=hidden), moments
    if weights is None:
        rarest = Fraction(float(found.counts.min()))
        ratios = [max(rarest / Fraction(count), Fraction(1, LARGEST_CLASS_WEIGHT)) for count in found.counts.tolist()]
        weights = whole_weights(ratios)
        if not weights:
            return Weighing(note="the classes have as many rows, so balanced weights are equal"), moments
    factors = np.array(weights) / max(weights)
    weighing = Weighing(weights, float(factors @ found.counts / found.counts.sum()))
    if not found.are_certain:
        return replace(weighing, note=f"{found.hidden_in_words()}: what weights do is not known well"), moments
    return weighing, _weighted(moments, found, factors)


def _weighted(moments: SomeMoments, found: _ClassSums, factors: Vector) -> SomeMoments:
    """The module's moments of the weighted population, over n rows."""
    counts = found.counts
    rows = max(1, round(float((factors @ counts) ** 2 / (np.square(factors) @ counts))))
    scales = factors * (rows / float(factors @ counts))
    between = [np.outer(one, one) / count for one, count in zip(found.sums, counts, strict=True)]
    within = moments.product_sum - sum(between)
    products = within * (rows / moments.rows) + np.tensordot(scales, between, axes=1)
    products[-1, :] = products[:, -1] = scales @ found.sums
    # The number of rows is public, so its square has no noise.
    products[-1, -1] = rows
    sums = scales[:, np.newaxis] * found.sums
    common: dict[str, Any] = {
        "product_sum": (products + products.T) / 2.0,
        "rows": rows,
        "product_noise": moments.product_noise * (rows / moments.rows),
    }
    if isinstance(moments, ClassMoments):
        common |= {"class_sums": sums, "sum_noise": float(scales.max()) * moments.sum_noise}
    else:
        # Each class's sum has half of the edges' noise, as far as the products' is small.
        noise = float(np.linalg.norm(scales)) * moments.edge_noise / np.sqrt(2.0)
        common |= {"edge_sum": sums[1] - sums[0], "edge_noise": noise}
    return replace(moments, **common)
