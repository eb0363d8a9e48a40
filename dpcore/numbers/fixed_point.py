"""Fixed point: features in [-1, 1] as integers in units of 2^-30, and integer sums as residues in slots.

A query shortens features to its `fraction_bits`. A sum x travels as u = (x + 2^(w-1) + mask) mod 2^w, w = `value_bits`;
K of them are added in a slot of `slot_bits` without a carry. The decoder subtracts K * 2^(w-1), reduces mod 2^w and
centres the result (docs/protocol.md, section 6).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from dpcore.errors import PlanError, SlotOverflowError

STORED_FRACTION_BITS = 30
ONE = 1 << STORED_FRACTION_BITS
"""The number 1 as features are stored."""
SLOT_UNIT_BITS = 8
MAX_SLOT_BITS = 64
# Two bits below int64, so that a value, its offset and its mask are added without overflow.
MAX_VALUE_BITS = 62


def _check_fraction_bits(fraction_bits: int) -> None:
    if not 0 <= fraction_bits <= STORED_FRACTION_BITS:
        raise PlanError(f"fraction_bits is {fraction_bits}: choose 0 to {STORED_FRACTION_BITS}")


@dataclass(frozen=True)
class Encoding:
    """The encoding of the sums of one query. Raises PlanError if these do not hold."""

    fraction_bits: int
    """Sums are in units of 2^-fraction_bits, 0 to 30."""
    value_bits: int
    """w, values travel mod 2^w, 2 to 62."""
    slot_bits: int
    """The width of a slot, a multiple of 8, w < slot_bits <= 64."""

    def __post_init__(self) -> None:
        _check_fraction_bits(self.fraction_bits)
        if self.slot_bits % SLOT_UNIT_BITS or not 0 < self.slot_bits <= MAX_SLOT_BITS:
            raise PlanError(f"slot_bits is {self.slot_bits}: choose a multiple of 8 up to {MAX_SLOT_BITS}")
        most = min(MAX_VALUE_BITS, self.slot_bits - 1)
        if not 2 <= self.value_bits <= most:
            raise PlanError(f"value_bits is {self.value_bits}: choose 2 to {most} for a slot of {self.slot_bits} bits")

    @property
    def max_parties(self) -> int:
        """The most contributions whose sum always fits in a slot: 2^(slot_bits - value_bits)."""
        return 1 << (self.slot_bits - self.value_bits)

    @property
    def largest_sum(self) -> int:
        """The largest |sum| that decodes correctly: 2^(value_bits - 1) - 1."""
        return (1 << (self.value_bits - 1)) - 1

    def slots_per_ciphertext(self, modulus_bits: int) -> int:
        """Whole slots below a modulus of exactly `modulus_bits` bits, including the check slot."""
        return (modulus_bits - 1) // self.slot_bits


def plan_encoding(*, largest_sum: int, max_parties: int, fraction_bits: int) -> Encoding:
    """The encoding with the narrowest whole-byte slot that holds every sum in [-largest_sum, largest_sum].

    largest_sum: bound of |total| over all parties, in units of 2^-fraction_bits, including noise. It must also be at
    least the cohort's largest row count, which travels in the check slot. max_parties: the most contributions in a
    total. value_bits is what the slot leaves after max(1, ceil(log2 max_parties)) bits of headroom.

    Raises SlotOverflowError if no slot is wide enough, PlanError if an argument is invalid.
    """
    _check_plan(largest_sum, max_parties)
    _check_fraction_bits(fraction_bits)
    headroom = _headroom_bits(max_parties)
    needed = max(2, _needed_bits(largest_sum))
    for slot_bits in range(SLOT_UNIT_BITS, MAX_SLOT_BITS + 1, SLOT_UNIT_BITS):
        value_bits = min(MAX_VALUE_BITS, slot_bits - headroom)
        if value_bits >= needed:
            return Encoding(fraction_bits, value_bits, slot_bits)
    available = max(0, min(MAX_VALUE_BITS, MAX_SLOT_BITS - headroom))
    raise _sum_overflow(needed, available, fraction_bits)


def check_fits(encoding: Encoding, *, largest_sum: int, max_parties: int) -> None:
    """Check that with this encoding `max_parties` sums within +-largest_sum cannot wrap; for another node's encodings.

    Raises SlotOverflowError if they do not fit, PlanError if an argument is invalid.
    """
    _check_plan(largest_sum, max_parties)
    needed = _needed_bits(largest_sum)
    if needed > encoding.value_bits:
        raise _sum_overflow(needed, encoding.value_bits, encoding.fraction_bits)
    if max_parties > encoding.max_parties:
        raise SlotOverflowError(
            needed_bits=encoding.value_bits + _headroom_bits(max_parties),
            available_bits=encoding.slot_bits,
            remedy=f"ask for at most {encoding.max_parties} parties or widen slot_bits",
        )


def _check_plan(largest_sum: int, max_parties: int) -> None:
    if largest_sum < 0:
        raise PlanError(f"largest_sum is {largest_sum}: give a bound on the absolute value, 0 or more")
    if max_parties < 1:
        raise PlanError(f"max_parties is {max_parties}: give at least 1")


def _needed_bits(largest_sum: int) -> int:
    """The least w with largest_sum < 2^(w-1)."""
    return largest_sum.bit_length() + 1


def _headroom_bits(max_parties: int) -> int:
    return max(1, (max_parties - 1).bit_length())


def _sum_overflow(needed: int, available: int, fraction_bits: int) -> SlotOverflowError:
    excess = needed - available
    lower = f"lower fraction_bits by {excess} or " if excess <= fraction_bits else ""
    remedy = f"{lower}ask for fewer max_rows (by a factor of {1 << excess})"
    return SlotOverflowError(needed_bits=needed, available_bits=available, remedy=remedy)


# Checks that integer sums stay within int64.


EXACT_INT64 = 1 << 63


def largest(values: NDArray[np.int64]) -> int:
    """The largest magnitude as a Python integer (NumPy's abs of int64's minimum overflows). 0 for no values."""
    return max(int(values.max()), -int(values.min())) if values.size else 0


def check_room(largest_sum: int) -> None:
    """Raise SlotOverflowError if a sum of this magnitude might exceed int64."""
    if largest_sum >= EXACT_INT64:
        raise SlotOverflowError(
            needed_bits=largest_sum.bit_length() + 1, available_bits=64, remedy="lower fraction_bits or use fewer rows"
        )


# Read-only arrays for frozen values. An array is copied only if it could still be written to.


def frozen(values: ArrayLike, dtype: DTypeLike) -> NDArray[Any]:
    """The values as a read-only array in row order; copied unless they and their bases are read-only."""
    if isinstance(values, np.ndarray) and values.dtype == dtype and values.flags.c_contiguous and _is_read_only(values):
        return values
    copy = np.array(values, dtype=dtype, order="C")
    copy.setflags(write=False)
    return copy


def _is_read_only(array: NDArray[Any]) -> bool:
    """Whether the array and everything that it is a view of is read-only. Of the buffers, only bytes always are."""
    owner: object = array
    while isinstance(owner, np.ndarray):
        if owner.flags.writeable:
            return False
        owner = owner.base
    return owner is None or isinstance(owner, bytes)
