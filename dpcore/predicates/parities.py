"""Sensitivity of a batch of parities: exclusive-ors of one to three atoms, as an additive model chooses its pairs by.

Claim. Let b_0, ..., b_F be 0 or 1 for a record, and each predicate the exclusive-or over a different one of the sets
{0}, {i}, {0, i}, {i, j} and {0, i, j}, 0 < i < j.

Replacing a record changes at most floor((F + 1)^2 / 2) of the sums, each by 1. If all sets occur and records may have
any b, some replacement reaches it.

Proof. A record that is not usable counts like one whose b are all 0. Let z be the exclusive-or of the old b and the
new: the sum of a set changes if and only if z has an odd number of ones on it.

With k ones among z_1, ..., z_F,

    z_0 = 0:  k + k + k (F - k) + k (F - k) = 2 k (F + 1 - k), largest at k = floor((F + 1) / 2): floor((F + 1)^2 / 2);
    z_0 = 1:  1 + k + (F - k) + k (F - k) + F (F - 1) / 2 - k (F - k) = (F^2 + F + 2) / 2, at most the former.
"""

from collections.abc import Sequence

from dpcore.predicates.expressions import And, LabelIs, Not, Or, Predicate

_MOST_BITS = 3

Parity = tuple[frozenset[Predicate], bool]
"""Atoms, and whether the predicate is their exclusive-or's complement."""


def parities_changed(predicates: Sequence[Predicate]) -> int | None:
    """The most sums that replacing a record changes, each by at most 1; None if the batch is not of the claim's form.

    Time: proportional to the predicates, of which each shared part counts once.
    """
    known: dict[int, Parity | None] = {}
    found = set[frozenset[Predicate]]()
    for predicate in predicates:
        parity = _parity(predicate, known)
        # A complement would be 0 for a record that is not usable, and 1 where all atoms are 0.
        if parity is None or parity[1] or parity[0] in found:
            return None
        found.add(parity[0])
    threes = [bits for bits in found if len(bits) == _MOST_BITS]
    atoms = frozenset[Predicate]().union(*found)
    if len(atoms) < 2 or (threes and not frozenset.intersection(*threes)):
        return None
    return len(atoms) ** 2 // 2


def _parity(node: Predicate, known: dict[int, Parity | None]) -> Parity | None:
    """The exclusive-or that a predicate is, of at most three atoms."""
    if id(node) not in known:
        known[id(node)] = _of_node(node, known)
    return known[id(node)]


def _of_node(node: Predicate, known: dict[int, Parity | None]) -> Parity | None:
    match node:
        case Not(part):
            parity = _parity(part, known)
            return parity and (parity[0], not parity[1])
        case LabelIs(positive):
            return frozenset([LabelIs(True)]), not positive
        case Or((And((a, b)), And((c, d)))):
            first, second, *others = (_parity(part, known) for part in (a, b, c, d))
            if first is None or second is None or {_not(first), _not(second)} != set(others):
                return None
            # (a & b) | (~a & ~b) is 1 where a and b are equal.
            bits, is_complement = first[0] ^ second[0], first[1] == second[1]
            return (bits, is_complement) if 0 < len(bits) <= _MOST_BITS else None
        case _:
            return (frozenset([node]), False) if node.boolean and not node.children() else None


def _not(parity: Parity) -> Parity:
    return parity[0], not parity[1]
