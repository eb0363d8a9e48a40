"""Which changes of a total an honest learner accepts, for each coalition that makes the total.

A strategy adds to the honest product whatever the coalition can make under encryption: multiples of any upload of any
attempt, numbers in any slot and in the tag, and a packed plaintext in the tag.

Its factors are numbers of the prime field; a real one is a whole number. The total opens if the check slot is unchanged
and the tag moved by h(change of the values). These are linear conditions on the factors, as polynomials in all
unknowns.

**Why polynomials.** A strategy that is fixed before the unknowns are drawn, and accepted for more than a share of
(values + 1) / p of them, fulfils the conditions identically (Schwartz 1980; Zippel 1979).

Coefficients of tags stay formal for who does not know them. Who knows them may choose factors by them, so they are
numbers then, at a random point.

**What it does not see.**

- A sum that wraps modulo 2^value_bits, which the tag refuses. Who knows the coefficient learns from a refusal whether
  one did (threat model, 4.1).
- Moves that shift slots by a power of two, or put a tag into slots: it has 130 bits, and what 64-bit slots read of it
  is no linear function.
- A ciphertext with a single value. A packed plaintext is one number whose slots cannot be taken apart, so ciphertexts
  have at least two values here. A single one can be taken out by who guesses how often each other slot's sum wrapped,
  with two honest members right in 3 of 4 cases on average for each slot.

  Who knows the coefficient a then finds a c, small like a c mod p, and scales a value V by 1 + c, if V^2 <
  2^(value_bits - 1).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from dpcore.research.who_learns_what.forms import ZERO, Form, Unknown, combined, drawn, solutions, total
from dpcore.research.who_learns_what.learning import Choice, Coalition
from dpcore.research.who_learns_what.protocol import TODAY, Kind, Protocol, Shown, Upload, alpha, polynomial, upload

_SLOT = 1 << 24
"""2^slot_bits in the prime field."""


class Change(StrEnum):
    """Of the values of a total that opens."""

    NUMBERS = "numbers that the coalition chooses are added"
    SCALED = "it depends on honest parties' values of this attempt: scaled, or a part left out"
    MIXED = "it depends on honest parties' values of another attempt: replaced or mixed"


@dataclass(frozen=True)
class _Move:
    """What a strategy may add."""

    slots: tuple[Form, ...]
    """Check slot first."""
    tag: Form = ZERO


def accepted(
    coalition: Coalition, honest: frozenset[str], choice: Choice, protocol: Protocol = TODAY, *, point: int = 0
) -> frozenset[Change]:
    """What can be changed of the total of the last attempt, without the learner's notice.

    Every honest party is shown one thing in the last attempt: its receipt is for the cohort that the learner checks. An
    honest coordinator adds nothing. A member may send other values, as numbers that are added; a party in no cohort
    cannot.
    """
    target = choice[-1][min(honest)]
    if coalition.learner or set(choice[-1].values()) != {target}:
        raise ValueError("a total is judged by an honest learner, for one cohort: show all honest parties the same")
    uploads = [upload(party, what, protocol) for shown in choice for party, what in sorted(shown.items())]
    moves = list(_moves(coalition, uploads, target, protocol))
    if not moves:
        return frozenset()

    def value_of(unknown: Unknown) -> int | None:
        return drawn(unknown, point) if coalition.knows(unknown, honest, protocol) else None

    coefficient = alpha(target, protocol)
    conditions = [
        [move.slots[0].at(value_of)]
        + ([(move.tag - polynomial(move.slots[1:], coefficient)).at(value_of)] if protocol.has_tag else [])
        for move in moves
    ]
    changes = {
        change
        for factors in solutions(conditions)
        for place in range(1, protocol.values + 1)
        for change in _changes(combined(factors, [move.slots[place].at(value_of) for move in moves]), target)
    }
    return frozenset(changes)


def _moves(coalition: Coalition, uploads: Sequence[Upload], target: Shown, protocol: Protocol) -> Iterator[_Move]:
    width = protocol.values + 1
    if not coalition.coordinator and not coalition.members & target.members:
        return
    yield from (_Move(_only(slot, Form.number(1), width)) for slot in range(width))
    if protocol.has_tag:
        yield _Move((ZERO,) * width, Form.number(1))
    if not coalition.coordinator:
        return
    for each in uploads:
        yield _Move(each.slots)
        if each.tag is not None:
            yield _Move((ZERO,) * width, each.tag)
            yield _Move((ZERO,) * width, total(slot * Form.number(_SLOT**at) for at, slot in enumerate(each.slots)))


def _only(slot: int, form: Form, width: int) -> tuple[Form, ...]:
    return tuple(form if at == slot else ZERO for at in range(width))


def _changes(form: Form, target: Shown) -> Iterator[Change]:
    for monomial in form.terms:
        attempts = {unknown.shown.partition(":")[0] for unknown in monomial if unknown.kind == Kind.NOISE}
        if not monomial:
            yield Change.NUMBERS
        elif attempts - {str(target.attempt)}:
            yield Change.MIXED
        else:
            yield Change.SCALED
