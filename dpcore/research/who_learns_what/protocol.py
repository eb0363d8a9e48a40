"""What an honest party sends in an attempt, as forms over unknowns.

The forms are those of the code: dpcore.paillier.packing (slots), masks and tag. Every rule of the protocol whose
absence was or would be a fault is a parameter, with today's protocol as default. So that model and code do not drift
apart, tests/end_to_end/test_forms_of_uploads.py decrypts real uploads and compares each plaintext with its form.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# Polynomials over unknowns with integer coefficients, and the spaces that they span modulo a prime: a value that
# travels is linear in the parties' unknowns, with powers of a tag's unknown coefficient.


PRIME = (1 << 31) - 1
"""Products of two residues fit int64."""

Matrix = NDArray[np.int64]


class Unknown(NamedTuple):
    """One number."""

    kind: str
    """What it is."""
    of: str = ""
    """Whose."""
    place: str = ""
    """Which value."""
    shown: str = ""
    """The attempt, or what it was derived for."""


Monomial = tuple[Unknown, ...]
"""A product of unknowns, in ascending order; () is 1."""


@dataclass(frozen=True)
class Form:
    """A polynomial."""

    terms: Mapping[Monomial, int]
    """Monomials with their coefficients, none of them zero."""

    @classmethod
    def of(cls, unknown: Unknown) -> "Form":
        """One unknown."""
        return cls({(unknown,): 1})

    @classmethod
    def number(cls, value: int) -> "Form":
        """A constant."""
        return cls({(): value} if value else {})

    def __add__(self, other: "Form") -> "Form":
        terms = dict(self.terms)
        for monomial, coefficient in other.terms.items():
            terms[monomial] = terms.get(monomial, 0) + coefficient
        return Form({monomial: coefficient for monomial, coefficient in terms.items() if coefficient})

    def __neg__(self) -> "Form":
        return Form({monomial: -coefficient for monomial, coefficient in self.terms.items()})

    def __sub__(self, other: "Form") -> "Form":
        return self + -other

    def __mul__(self, other: "Form") -> "Form":
        product: dict[Monomial, int] = {}
        for left, by in self.terms.items():
            for right, factor in other.terms.items():
                monomial = tuple(sorted(left + right))
                product[monomial] = product.get(monomial, 0) + by * factor
        return Form({monomial: coefficient for monomial, coefficient in product.items() if coefficient})

    def at(self, value_of: Callable[[Unknown], int | None], modulus: int = PRIME) -> "Form":
        """The form modulo `modulus` with those unknowns replaced that have a value; None leaves an unknown."""
        terms: dict[Monomial, int] = {}
        for monomial, coefficient in self.terms.items():
            kept, number = [], coefficient
            for unknown in monomial:
                value = value_of(unknown)
                if value is None:
                    kept.append(unknown)
                else:
                    number = number * value % modulus
            terms[tuple(kept)] = (terms.get(tuple(kept), 0) + number) % modulus
        return Form({monomial: coefficient for monomial, coefficient in terms.items() if coefficient})

    def without(self, is_known: Callable[[Monomial], bool]) -> "Form":
        """The form without its known monomials: who knows them can subtract them."""
        return Form({monomial: by for monomial, by in self.terms.items() if not is_known(monomial)})

    @property
    def unknowns(self) -> frozenset[Unknown]:
        """All that occur."""
        return frozenset(unknown for monomial in self.terms for unknown in monomial)


ZERO = Form({})


def total(forms: Iterable[Form]) -> Form:
    """The sum."""
    return sum(forms, ZERO)


@lru_cache(1 << 14)
def drawn(unknown: Unknown, point: int) -> int:
    """A residue from 1 on that stands for a known number: the same for one unknown and point, otherwise independent.

    Ranks are the field's but for a probability of degree by PRIME (Schwartz 1980; Zippel 1979): ask at several points.
    """
    digest = hashlib.sha256("\0".join((str(point), *unknown)).encode()).digest()
    return 1 + int.from_bytes(digest[:8], "big") % (PRIME - 1)


def revealed(forms: Sequence[Form], is_hidden: Callable[[Monomial], bool]) -> list[Form]:
    """A basis of those combinations of `forms` in which no hidden monomial occurs, in reduced echelon form."""
    monomials = sorted({monomial for form in forms for monomial in form.terms}, key=lambda m: (not is_hidden(m), m))
    first_open = sum(is_hidden(monomial) for monomial in monomials)
    reduced, pivots = _reduced(_matrix(forms, monomials))
    rows = [reduced[index] for index, pivot in enumerate(pivots) if pivot >= first_open]
    return [_form(row, monomials) for row in rows]


def outside(space: Sequence[Form], forms: Sequence[Form]) -> list[Form]:
    """Those of `forms` that are no combination of `space`."""
    monomials = sorted({monomial for form in (*space, *forms) for monomial in form.terms})
    basis, pivots = _reduced(_matrix(space, monomials))
    found = []
    for form, row in zip(forms, _matrix(forms, monomials), strict=True):
        rest = row
        for index, pivot in enumerate(pivots):
            rest = (rest - rest[pivot] * basis[index]) % PRIME
        if rest.any():
            found.append(form)
    return found


def solutions(conditions: Sequence[Sequence[Form]]) -> Matrix:
    """A basis of all factors, (count, moves), whose combination is zero in every condition; a move's forms in each."""
    monomials = sorted(
        {(place, monomial) for move in conditions for place, form in enumerate(move) for monomial in form.terms}
    )
    column = {key: index for index, key in enumerate(monomials)}
    matrix = np.zeros((len(conditions), len(monomials) + len(conditions)), dtype=np.int64)
    for index, move in enumerate(conditions):
        for place, form in enumerate(move):
            for monomial, coefficient in form.terms.items():
                matrix[index, column[place, monomial]] = coefficient % PRIME
        matrix[index, len(monomials) + index] = 1
    reduced, pivots = _reduced(matrix)
    return reduced[sum(pivot < len(monomials) for pivot in pivots) : len(pivots), len(monomials) :]


def combined(factors: Iterable[int], forms: Sequence[Form]) -> Form:
    """The combination of forms by these factors, modulo PRIME."""
    return total(form * Form.number(int(by)) for by, form in zip(factors, forms, strict=True) if by).at(lambda _: None)


def _matrix(forms: Sequence[Form], monomials: Sequence[Monomial]) -> Matrix:
    column = {monomial: index for index, monomial in enumerate(monomials)}
    matrix = np.zeros((len(forms), len(monomials)), dtype=np.int64)
    for index, form in enumerate(forms):
        for monomial, coefficient in form.terms.items():
            matrix[index, column[monomial]] = coefficient % PRIME
    return matrix


def _form(row: Matrix, monomials: Sequence[Monomial]) -> Form:
    return Form({monomials[int(index)]: int(row[index]) for index in np.flatnonzero(row)})


def _reduced(matrix: Matrix) -> tuple[Matrix, list[int]]:
    """The reduced echelon form modulo PRIME, and each row's pivot column; zero rows are last and have none."""
    pivots: list[int] = []
    rows = matrix % PRIME
    for column in range(rows.shape[1]):
        done = len(pivots)
        candidates = np.flatnonzero(rows[done:, column])
        if not candidates.size:
            continue
        chosen = done + int(candidates[0])
        rows[[done, chosen]] = rows[[chosen, done]]
        rows[done] = rows[done] * pow(int(rows[done, column]), -1, PRIME) % PRIME
        factors = rows[:, column].copy()
        factors[done] = 0
        touched = np.flatnonzero(factors)
        rows[touched] = (rows[touched] - factors[touched, np.newaxis] * rows[done]) % PRIME
        pivots.append(column)
        if len(pivots) == rows.shape[0]:
            break
    return rows, pivots


CHECK, TAG = "check", "tag"
"""Places besides those of the values, which are "1", "2" and so on."""


class Kind(StrEnum):
    """Of unknowns."""

    DATA = "data"
    """What a party adds to a value of every total: the same in all attempts."""
    NOISE = "noise"
    """What it adds in one attempt: shares of noise, rado signatures that are drawn afresh."""
    ROWS = "rows"
    """Its row count, which it signs and all members see."""
    OFFSET = "offset"
    """2^(w-1), which makes what travels positive."""
    MASK = "mask"
    """What two members derive for one slot or for tags."""
    PAD = "pad"
    """What a member and the learner derive for the tag."""
    ALPHA = "alpha"
    """The tag's coefficient."""


@dataclass(frozen=True)
class Protocol:
    """The rules."""

    values: int = 2
    """Of one ciphertext, at least 2 (see `dpcore.research.who_learns_what.learning`)."""
    has_tag: bool = True
    """Whether totals carry a tag (feature bound-totals)."""
    commits_seeds: bool = True
    """Whether the query commits to one seed, so that every party has the same coefficient."""
    seeds_for_roster: bool = False
    """Whether the learner seals the seed to parties that it has not accepted."""
    unmasked: frozenset[tuple[str, str]] = frozenset()
    """Pairs of members (lesser name, greater name) that do not mask."""
    masks_tags: bool = True
    """Whether tags are masked."""
    masks_name_attempt: bool = True
    """Whether masks differ between attempts (fresh keys, and the attempt in the derivation)."""
    masks_name_cohort: bool = True
    """Whether masks differ between cohorts."""
    pads_name_attempt: bool = True
    """Whether pads differ between attempts and cohorts."""

    @property
    def places(self) -> tuple[str, ...]:
        """Of the values."""
        return tuple(str(place) for place in range(1, self.values + 1))


TODAY = Protocol()


@dataclass(frozen=True)
class Shown:
    """What a sender shows one recipient in one attempt."""

    attempt: int
    """Its number; those of one query and of several are alike here."""
    members: frozenset[str]
    """Of the cohort that it is shown."""
    variant: int = 0
    """Distinguishes whatever else enters the cohort's digest: mask keys, unaccepted members, row counts, the query."""
    seed: int = 0
    """Which seed was sealed for it."""

    @property
    def digest(self) -> str:
        """Equal for two recipients exactly if attempt, members and variant are."""
        return f"{self.attempt}:{self.cohort}"

    @property
    def cohort(self) -> str:
        """The digest without the attempt."""
        return f"{'+'.join(sorted(self.members))}:{self.variant}"


@dataclass(frozen=True)
class Upload:
    """The plaintexts that a party sends; its acceptance and receipt do not depend on its values."""

    party: str
    shown: Shown
    slots: tuple[Form, ...]
    """Check slot first, then the values."""
    tag: Form | None
    """None without the feature."""


def contribution(party: str, place: str, shown: Shown) -> Form:
    """One value that a party adds to a total: of its data, and what it draws afresh in every attempt."""
    return Form.of(Unknown(Kind.DATA, party, place)) + Form.of(Unknown(Kind.NOISE, party, place, str(shown.attempt)))


def alpha(shown: Shown, protocol: Protocol) -> Form:
    """The tag's coefficient, as a recipient of this derives it."""
    seed = 0 if protocol.commits_seeds else shown.seed
    return Form.of(Unknown(Kind.ALPHA, str(seed), "", str(shown.attempt)))


def polynomial(values: tuple[Form, ...], coefficient: Form) -> Form:
    """Alpha v_1 + alpha^2 v_2 + ..."""
    result = ZERO
    for value in reversed(values):
        result = (result + value) * coefficient
    return result


def pad(party: str, shown: Shown, protocol: Protocol) -> Form:
    """The pad of a member's tag, which the learner derives too."""
    return Form.of(Unknown(Kind.PAD, party, "", shown.digest if protocol.pads_name_attempt else ""))


def mask(party: str, place: str, shown: Shown, protocol: Protocol) -> Form:
    """A member's mask of one slot, or of its tag."""
    return total(_masks(party, place, shown, protocol))


def _masks(party: str, place: str, shown: Shown, protocol: Protocol) -> Iterator[Form]:
    cohort = shown.cohort if protocol.masks_name_cohort else ""
    derived_for = f"{shown.attempt if protocol.masks_name_attempt else 0}:{cohort}"
    for peer in sorted(shown.members - {party}):
        lesser, greater = sorted((party, peer))
        if (lesser, greater) not in protocol.unmasked:
            stream = Form.of(Unknown(Kind.MASK, f"{lesser}+{greater}", place, derived_for))
            yield stream if party == lesser else -stream


def pair_of(unknown: Unknown) -> tuple[str, str]:
    """The two members that derive a mask."""
    lesser, greater = unknown.of.split("+")
    return lesser, greater


@lru_cache(1 << 12)
def upload(party: str, shown: Shown, protocol: Protocol = TODAY) -> Upload:
    """What an honest party sends for what it was shown."""
    offset = Form.of(Unknown(Kind.OFFSET))
    values = tuple(contribution(party, place, shown) for place in protocol.places)
    bare = (Form.of(Unknown(Kind.ROWS, party)), *values)
    places = (CHECK, *protocol.places)
    slots = tuple(
        value + offset + mask(party, place, shown, protocol) for value, place in zip(bare, places, strict=True)
    )
    if not protocol.has_tag:
        return Upload(party, shown, slots, None)
    tag = pad(party, shown, protocol) + polynomial(values, alpha(shown, protocol))
    return Upload(party, shown, slots, tag + mask(party, TAG, shown, protocol) if protocol.masks_tags else tag)
