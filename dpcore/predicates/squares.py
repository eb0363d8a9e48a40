"""The square of a coordinate as a predicate, from below: the largest of K of its tangents.

With z in [-1, 1], a tangent of z^2 at t is below it by (z - t)^2. The points t are the middles of K equal parts, so the
nearest is within 1 / K, and g, the largest tangent, has z^2 - 1 / K^2 <= g(z) <= z^2.

Clipped to [0, 1] this still holds: where all tangents are negative, z^2 is at most 1 / K^2, and g is 0.
"""

from functools import lru_cache

from dpcore.predicates.expressions import Affine, Clipped, Or, Predicate

TANGENTS = 64
"""K."""
SLACK = 1.0 / TANGENTS**2
"""At most so much is g below the square."""


@lru_cache(maxsize=256)
def square(name: str) -> Predicate:
    """G of a coordinate."""
    # With t = at / K, a tangent 2 t z - t^2 is (2 at K z - at^2) / K^2.
    places = [2 * place + 1 - TANGENTS for place in range(TANGENTS)]
    return Or(tuple(Clipped(Affine(((name, 2 * at * TANGENTS),), -at * at), TANGENTS * TANGENTS) for at in places))


def squared(predicate: Predicate) -> str | None:
    """The coordinate that a predicate is the square of; None if it is no `square`."""
    if not isinstance(predicate, Or) or len(predicate.parts) != TANGENTS:
        return None
    first = predicate.parts[0]
    if not isinstance(first, Clipped) or len(first.form.weights) != 1:
        return None
    ((name, _),) = first.form.weights
    return name if predicate == square(name) else None
