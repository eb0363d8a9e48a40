"""Packing: many values in the slots of one Paillier plaintext, M = sum_s u_s * 2^(slot_bits * s).

Slot 0 is the check slot, with the sender's row count. With S slots a plaintext, value i is in plaintext i // (S - 1),
slot 1 + i % (S - 1); unused slots carry 0.

The check slot detects mistakes, not cheating: anyone who knows n can add a known number to an encrypted plaintext.
Masks and the tag (dpcore.paillier.masks) protect against that.
"""

from collections.abc import Sequence

import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from dpcore.errors import PlanError, ShapeError, SlotOverflowError, TotalError
from dpcore.numbers.fixed_point import Encoding

# Plaintexts are read and written as little-endian bytes on every machine.
_LITTLE_U64 = np.dtype("<u8")


class PlaintextRangeError(TotalError):
    """A decrypted plaintext has bits beyond its slots: it is not a sum of packed contributions."""

    def __init__(self, *, ciphertext: int, bits: int, allowed_bits: int) -> None:
        self.ciphertext, self.bits, self.allowed_bits = ciphertext, bits, allowed_bits
        super().__init__(
            f"the plaintext of ciphertext {ciphertext} has {bits} bits, but its slots hold {allowed_bits}: "
            "discard the total and send the query again"
        )


class CheckSlotError(TotalError):
    """A check slot does not show the cohort's row count: a contribution is missing, repeated or corrupted."""

    def __init__(self, *, ciphertext: int, expected_rows: int, found_rows: int) -> None:
        self.ciphertext, self.expected_rows, self.found_rows = ciphertext, expected_rows, found_rows
        super().__init__(
            f"ciphertext {ciphertext} counts {found_rows} rows, but the cohort signed {expected_rows}: "
            "discard the total and send the query again"
        )


def ciphertext_count(length: int, encoding: Encoding, modulus_bits: int) -> int:
    """The number of ciphertexts that carry `length` values. Raises PlanError."""
    if length < 1:
        raise PlanError(f"a query of {length} values: ask for at least one")
    return -(-length // (_slots(encoding, modulus_bits) - 1))


def to_residues(
    values: NDArray[np.int64], encoding: Encoding, mask: NDArray[np.uint64] | None = None
) -> NDArray[np.uint64]:
    """The travel form u = (x + 2^(w-1) + mask) mod 2^w of each value, reduced after masking; any shape.

    mask: None for zero. A value beyond w bits wraps: the plan bounds the probability.
    """
    # Unsigned arithmetic is mod 2^64, and 2^w divides 2^64.
    residues = np.asarray(values, dtype=np.int64).astype(np.uint64) + np.uint64(1 << (encoding.value_bits - 1))
    if mask is not None:
        residues = residues + mask
    return np.asarray(residues & np.uint64((1 << encoding.value_bits) - 1), dtype=np.uint64)


def pack(
    values: NDArray[np.int64],
    rows: int,
    encoding: Encoding,
    modulus_bits: int,
    mask: NDArray[np.uint64] | None = None,
) -> list[mpz]:
    """One party's plaintexts, each below 2^(modulus_bits - 1).

    values: (L,), the party's sums in units of 2^-fraction_bits. rows: its row count. mask: (ciphertexts, slots), one
    number a slot, including check and padding slots; None for zero.

    Raises ShapeError if an array has another shape or type, SlotOverflowError if rows do not fit a slot, and the errors
    of `ciphertext_count`.
    """
    return _plaintexts(to_residues(_laid_out(values, rows, encoding, modulus_bits, mask), encoding, mask), encoding)


def mask_addends(
    values: NDArray[np.int64],
    rows: int,
    encoding: Encoding,
    modulus_bits: int,
    mask: NDArray[np.uint64],
    top_up: NDArray[np.int64] | None = None,
) -> list[mpz]:
    """What to add to each plaintext of `pack` without a mask for this one, below 2^value_bits; may be negative.

    A slot takes its mask, less 2^w where residue and mask together wrap. top_up: (L,), added to the values as well;
    None for zero. Raises what `pack` raises.
    """
    bare = to_residues(_laid_out(values, rows, encoding, modulus_bits, mask), encoding)
    if top_up is not None:
        if top_up.shape != values.shape or top_up.dtype != np.int64:
            raise ShapeError(f"the top-up is {top_up.dtype} {top_up.shape}: give int64 {values.shape}")
        # Unsigned arithmetic is mod 2^64, and 2^w divides 2^64; the check slot's part is zero.
        mask = mask + _laid_out(top_up, 0, encoding, modulus_bits, mask).astype(np.uint64)
    wrap = np.uint64(1 << encoding.value_bits)
    # Shifted by 2^w, a slot's difference is in (0, 2^(w+1)), which a slot of more than w bits holds without a sign.
    shifted = ((bare + mask) & (wrap - np.uint64(1))) + wrap - bare
    shift = sum(mpz(1) << (encoding.value_bits + encoding.slot_bits * slot) for slot in range(bare.shape[1]))
    return [plaintext - shift for plaintext in _plaintexts(shifted, encoding)]


def _laid_out(
    values: NDArray[np.int64], rows: int, encoding: Encoding, modulus_bits: int, mask: NDArray[np.uint64] | None
) -> NDArray[np.int64]:
    """The numbers of every slot, int64 (ciphertexts, slots); checks the arguments of `pack`."""
    if values.ndim != 1 or values.dtype != np.int64:
        raise ShapeError(f"values are {values.dtype} {values.shape}: give int64 (L,)")
    _check_rows(rows, encoding)
    count, slots = ciphertext_count(len(values), encoding, modulus_bits), _slots(encoding, modulus_bits)
    if mask is not None and (mask.shape != (count, slots) or mask.dtype != np.uint64):
        raise ShapeError(f"the mask is {mask.dtype} {mask.shape}: give uint64 ({count}, {slots})")
    padded = np.zeros(count * (slots - 1), dtype=np.int64)
    padded[: len(values)] = values
    laid_out = np.empty((count, slots), dtype=np.int64)
    laid_out[:, 0] = rows
    laid_out[:, 1:] = padded.reshape(count, slots - 1)
    return laid_out


def _plaintexts(slots: NDArray[np.uint64], encoding: Encoding) -> list[mpz]:
    """One integer for each row of (ciphertexts, slots), slot 0 in its lowest bits; each entry fits a slot."""
    octets = slots.astype(_LITTLE_U64, copy=False).view(np.uint8).reshape(*slots.shape, 8)
    serial = memoryview(octets[:, :, : encoding.slot_bits // 8].tobytes())
    width = slots.shape[1] * encoding.slot_bits // 8
    return [mpz.from_bytes(serial[at : at + width], "little") for at in range(0, len(serial), width)]


def from_total(slot_totals: NDArray[np.uint64], parties: int, encoding: Encoding) -> NDArray[np.int64]:
    """The sums in slots of `parties` travel forms whose masks cancel, in [-2^(w-1), 2^(w-1)); any shape. PlanError."""
    if not 1 <= parties <= encoding.max_parties:
        raise PlanError(f"{parties} contributions in one slot: use 1 to {encoding.max_parties} with this encoding")
    w = encoding.value_bits
    modulus = 1 << w
    # Adding the offset's negative mod 2^w instead of subtracting keeps everything unsigned.
    correction = np.uint64(-parties * (modulus >> 1) % modulus)
    residues = (np.asarray(slot_totals, dtype=np.uint64) & np.uint64(modulus - 1)) + correction
    centred = (residues & np.uint64(modulus - 1)).astype(np.int64)
    return np.asarray(centred - ((centred >> (w - 1)) << w), dtype=np.int64)


def unpack_total(
    plaintexts: Sequence[int],
    length: int,
    parties: int,
    encoding: Encoding,
    modulus_bits: int,
    mask: NDArray[np.uint64] | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The summed values, int64 (length,), and the row count in each check slot, int64 (ciphertexts,).

    plaintexts: the decrypted products of `parties` contributions that `pack` made. mask: what is left of their masks,
    uint64 (ciphertexts, slots). The caller must compare the row counts with the cohort's, or call `open_total`.

    Raises PlaintextRangeError if a plaintext has bits beyond its slots, TotalError if the number of plaintexts is
    wrong, and the errors of `from_total` and `ciphertext_count`.
    """
    count, slots = ciphertext_count(length, encoding, modulus_bits), _slots(encoding, modulus_bits)
    if len(plaintexts) != count:
        raise TotalError(f"{len(plaintexts)} plaintexts for {length} values, which take {count}: fetch them all")
    slot_bytes = encoding.slot_bits // 8
    allowed_bits = slots * encoding.slot_bits
    for index, plaintext in enumerate(plaintexts):
        if plaintext < 0 or plaintext.bit_length() > allowed_bits:
            raise PlaintextRangeError(ciphertext=index, bits=plaintext.bit_length(), allowed_bits=allowed_bits)
    serial = b"".join([plaintext.to_bytes(slots * slot_bytes, "little") for plaintext in plaintexts])
    octets = np.zeros((count, slots, 8), dtype=np.uint8)
    octets[:, :, :slot_bytes] = np.frombuffer(serial, dtype=np.uint8).reshape(count, slots, slot_bytes)
    totals = octets.reshape(count, slots * 8).view(_LITTLE_U64).astype(np.uint64, copy=False)
    # Unsigned arithmetic is mod 2^64, of which 2^w is a divisor.
    sums = from_total(totals if mask is None else totals - mask, parties, encoding)
    return sums[:, 1:].reshape(-1)[:length].copy(), sums[:, 0].copy()


def open_total(
    plaintexts: Sequence[int],
    length: int,
    parties: int,
    encoding: Encoding,
    modulus_bits: int,
    *,
    rows: int,
    mask: NDArray[np.uint64] | None = None,
) -> NDArray[np.int64]:
    """The summed values, int64 (length,), after checking that every check slot shows the cohort's `rows`.

    mask: see `unpack_total`.

    If the contributions are masked, a product of part of the cohort, or one that counts a member twice, passes with
    probability 2^-w for each ciphertext, or 2^-(2w - slot_bits) if it was also scaled by a power of two; what passes is
    noise. Numbers added to the whole product are not detected.

    Raises CheckSlotError for the first ciphertext that fails, SlotOverflowError if the rows do not fit a slot, and the
    errors of `unpack_total`.
    """
    _check_rows(rows, encoding)
    values, checks = unpack_total(plaintexts, length, parties, encoding, modulus_bits, mask)
    failed = np.flatnonzero(checks != rows)
    if failed.size:
        first = int(failed[0])
        raise CheckSlotError(ciphertext=first, expected_rows=rows, found_rows=int(checks[first]))
    return values


def _slots(encoding: Encoding, modulus_bits: int) -> int:
    slots = encoding.slots_per_ciphertext(modulus_bits)
    if slots < 2:
        raise PlanError(
            f"a modulus of {modulus_bits} bits holds {max(0, slots)} slots of {encoding.slot_bits} bits, and the check "
            "slot leaves none for a value: use a longer key"
        )
    return slots


def _check_rows(rows: int, encoding: Encoding) -> None:
    if not 0 <= rows <= encoding.largest_sum:
        raise SlotOverflowError(
            needed_bits=rows.bit_length() + 1,
            available_bits=encoding.value_bits,
            remedy=f"the check slot counts 0 to {encoding.largest_sum} rows, not {rows}: widen slot_bits",
        )
