"""Powers modulo the square of a prime, eight at a time, with AVX-512 IFMA. Importing it compiles or loads them.

A number modulo p^2 is a + b p, with a and b below 2 p: a product needs half the work of one of twice the length. Let R
be 2^(52 L). For p odd and any t there is a q < R with t + q p = R r (Montgomery, Mathematics of Computation 44, 1985):

    (a + b p) (c + d p) = R r + (a d + b c - q) p  mod p^2,  where a c + q p = R r

and a d + b c + K p - q, with R < K p <= R + p, is reduced the same way. As R >= 256 p, all stays below 2 p without any
comparison:

    (4 p^2 + R p) / R < 2 p  and  (8 p^2 + R + p + R p) / R < 2 p

Numbers are L digits of 52 bits, digit by digit, eight numbers side by side. A digit's sum stays below 2^61: each of at
most 40 steps adds six terms below 2^52.

The exponent alone decides what is done, in windows of five bits.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import gmpy2
import numba
import numpy as np
from gmpy2 import mpz
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from dpcore.numbers.compiling import compiled, processor_has

LANES = 8
_DIGIT_BITS = 52
_MASK = (1 << _DIGIT_BITS) - 1
_WINDOW_BITS = 5
# R is at least this many times the prime, as a power of two.
_SPARE_BITS = 8

AVAILABLE = processor_has("avx512f", "avx512ifma")
"""Whether this processor can, so that `powers` can be called."""

Digits = NDArray[np.uint64]
_cgutils: Any = cgutils
F = TypeVar("F", bound=Callable[..., Any])
_njit: Any = numba.njit(nogil=True)
_inner: Callable[[F], F] = _njit
_EIGHT = ir.VectorType(ir.IntType(64), LANES)


def _step(
    typing: Any,  # noqa: ARG001
    total: Any,
    quotient: Any,
    digit: Any,  # noqa: ARG001
    count: Any,  # noqa: ARG001
    prime: Any,
    inverse: Any,
    *factors: Any,
) -> Any:
    """One digit's step of a reduced sum of products: total = (total + digit of a times b + q p) / 2^52, and so on.

    factors: a, b of each product. The digit q goes to `quotient`. inverse: -1 / p mod 2^52.
    """

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        def at(argument: int, place: Any) -> Any:
            data = context.make_array(signature.args[argument])(context, builder, values[argument]).data
            cell = builder.mul(place, ir.Constant(ir.IntType(64), LANES))
            return builder.bitcast(builder.gep(data, [cell]), _EIGHT.as_pointer())

        def load(argument: int, place: Any) -> Any:
            return builder.load(at(argument, place), align=8, typ=_EIGHT)

        kind = ir.FunctionType(_EIGHT, [_EIGHT] * 3)
        low, high = (
            _cgutils.get_or_insert_function(builder.module, kind, f"llvm.x86.avx512.vpmadd52{half}.uq.512")
            for half in "lh"
        )
        first, one = ir.Constant(ir.IntType(64), 0), ir.Constant(ir.IntType(64), 1)
        zero, shift = ir.Constant(_EIGHT, [0] * LANES), ir.Constant(_EIGHT, [_DIGIT_BITS] * LANES)
        # Pairs of a factor's digit and the argument that holds the other factor.
        terms = [(load(6 + 2 * pair, values[2]), 7 + 2 * pair) for pair in range(len(factors) // 2)]
        so_far = load(0, first)
        for factor, other in terms:
            so_far = builder.call(low, [so_far, factor, load(other, first)])
        q = builder.call(low, [zero, so_far, load(5, first)])
        builder.store(q, at(1, values[2]), align=8)
        terms.append((q, 4))
        so_far = builder.call(low, [so_far, q, load(4, first)])
        # Its lowest 52 bits are zero now. LLVM makes registers of these.
        carry = _cgutils.alloca_once_value(builder, builder.lshr(so_far, shift))
        before = [_cgutils.alloca_once_value(builder, load(other, first)) for _, other in terms]
        with _cgutils.for_range(builder, builder.sub(values[3], one)) as loop:
            place = builder.add(loop.index, one)
            upper, lower = builder.load(carry, typ=_EIGHT), load(0, place)
            builder.store(zero, carry)
            for (factor, other), digits in zip(terms, before, strict=True):
                upper = builder.call(high, [upper, factor, builder.load(digits, typ=_EIGHT)])
                here = load(other, place)
                lower = builder.call(low, [lower, factor, here])
                builder.store(here, digits)
            builder.store(builder.add(upper, lower), at(0, loop.index), align=8)
        last = builder.load(carry, typ=_EIGHT)
        for (factor, _), digits in zip(terms, before, strict=True):
            last = builder.call(high, [last, factor, builder.load(digits, typ=_EIGHT)])
        builder.store(last, at(0, builder.sub(values[3], one)), align=8)
        return context.get_dummy_value()

    arguments = (total, quotient, types.int64, types.int64, prime, inverse)
    return types.void(*arguments, *factors), generate


def _one_product(
    typing: Any, total: Any, quotient: Any, digit: Any, count: Any, prime: Any, inverse: Any, a: Any, b: Any
) -> Any:
    """The step of a b."""
    return _step(typing, total, quotient, digit, count, prime, inverse, a, b)


def _two_products(
    typing: Any,
    total: Any,
    quotient: Any,
    digit: Any,
    count: Any,
    prime: Any,
    inverse: Any,
    a: Any,
    b: Any,
    c: Any,
    d: Any,
) -> Any:
    """The step of a b + c d."""
    return _step(typing, total, quotient, digit, count, prime, inverse, a, b, c, d)


_add_one: Any = intrinsic(_one_product)
_add_two: Any = intrinsic(_two_products)


@_inner
def _carry(digits: Digits, into: Digits) -> None:
    """The same numbers in digits below 2^52."""
    carried = np.zeros(LANES, np.uint64)
    for first in range(0, len(digits), LANES):
        for lane in range(LANES):
            digit = digits[first + lane] + carried[lane]
            into[first + lane] = digit & np.uint64(_MASK)
            carried[lane] = digit >> np.uint64(_DIGIT_BITS)


@_inner
def _multiply(
    x: Digits, y: Digits, prime: Digits, multiple: Digits, inverse: Digits, scratch: Digits, squares: bool
) -> None:
    """Set x to x y / R mod p^2. x, y: (2, 8 L), the a's and b's. scratch: (4, 8 L). squares: whether y is x."""
    count = x.shape[1] // LANES
    total, quotient, remainder, twice = scratch[0], scratch[1], scratch[2], scratch[3]
    total[:] = np.uint64(0)
    for digit in range(count):
        _add_one(total, quotient, digit, count, prime, inverse, x[0], y[0])
    _carry(total, remainder)
    for cell in range(len(total)):
        total[cell] = multiple[cell] - quotient[cell]
    if squares:
        for cell in range(len(total)):
            twice[cell] = x[1, cell] + x[1, cell]
        _carry(twice, twice)
        for digit in range(count):
            _add_one(total, quotient, digit, count, prime, inverse, x[0], twice)
    else:
        for digit in range(count):
            _add_two(total, quotient, digit, count, prime, inverse, x[0], y[1], x[1], y[0])
    _carry(total, x[1])
    x[0] = remainder


def _raise(x: Digits, one: Digits, steps: NDArray[np.int64], prime: Digits, multiple: Digits, inverse: Digits) -> None:
    """Set x to R (x / R)^exponent mod p^2. one: R. steps: windows of the exponent, or negative to square."""
    scratch = np.empty((4, x.shape[1]), np.uint64)
    table = np.empty((1 << _WINDOW_BITS, 2, x.shape[1]), np.uint64)
    table[0] = one
    for entry in range(1, len(table)):
        table[entry] = table[entry - 1]
        _multiply(table[entry], x, prime, multiple, inverse, scratch, False)
    x[:] = one
    for step in steps:
        _multiply(x, x if step < 0 else table[step], prime, multiple, inverse, scratch, step < 0)


if AVAILABLE:
    _raise = compiled(
        types.void(types.uint64[:, ::1], types.uint64[:, ::1], types.int64[::1], *[types.uint64[::1]] * 3)
    )(_raise)


def powers(bases: Sequence[mpz], exponent: mpz, prime: mpz) -> list[mpz]:
    """Each base^exponent mod prime^2. bases: in [0, prime^2). exponent: above 0. prime: odd, of 2048 bits at most."""
    count = -(-(prime.bit_length() + _SPARE_BITS) // _DIGIT_BITS)
    r, square = mpz(1) << _DIGIT_BITS * count, prime * prime
    one = r % square
    steps: list[int] = []
    for at in reversed(range(0, exponent.bit_length(), _WINDOW_BITS)):
        steps += [*[-1] * (_WINDOW_BITS if steps else 0), int(exponent >> at) & (1 << _WINDOW_BITS) - 1]
    constants = (
        _digits([prime] * LANES, count),
        _multiple_of(prime, count).repeat(LANES),
        np.full(LANES, int(-gmpy2.invert(prime, 1 << _DIGIT_BITS)) & _MASK, np.uint64),
    )
    found: list[mpz] = []
    for first in range(0, len(bases), LANES):
        here = [base * r % square for base in bases[first : first + LANES]]
        lanes = here + [one] * (LANES - len(here))
        x = np.stack([_digits([lane % prime for lane in lanes], count), _digits([n // prime for n in lanes], count)])
        ones = np.stack([_digits([one % prime] * LANES, count), _digits([one // prime] * LANES, count)])
        _raise(x, ones, np.array(steps), *constants)
        a, b = (_numbers(part, count) for part in x)
        found += [low + high * prime for low, high in zip(a, b, strict=True)][: len(here)]
    back = gmpy2.invert(r, square)
    return [number * back % square for number in found]


def _multiple_of(prime: mpz, count: int) -> Digits:
    """The least multiple of the prime above R, in digits from which any digits below 2^52 can be taken."""
    multiple = ((mpz(1) << _DIGIT_BITS * count) // prime + 1) * prime
    digits = [int(multiple >> _DIGIT_BITS * place) & _MASK for place in range(count)]
    # Each digit borrows one of the next. The last has the rest, at least 2^52.
    borrowed = [digit + (1 << _DIGIT_BITS) - (place > 0) for place, digit in enumerate(digits[:-1])]
    return np.array([*borrowed, int(multiple >> _DIGIT_BITS * (count - 1)) - (count > 1)], np.uint64)


def _digits(numbers: Sequence[mpz], count: int) -> Digits:
    """`count` digits of eight numbers, side by side: (8 count,)."""
    width = -(-_DIGIT_BITS * count // 8)
    octets = b"".join(int(number).to_bytes(width, "little") for number in numbers)
    bits = np.unpackbits(np.frombuffer(octets, np.uint8).reshape(LANES, width), axis=1, bitorder="little")
    apart = np.zeros((LANES, count, 64), np.uint8)
    apart[:, :, :_DIGIT_BITS] = bits[:, : _DIGIT_BITS * count].reshape(LANES, count, _DIGIT_BITS)
    return np.packbits(apart, axis=2, bitorder="little").view("<u8")[:, :, 0].T.reshape(-1).astype(np.uint64)


def _numbers(digits: Digits, count: int) -> list[mpz]:
    """The numbers of `_digits`."""
    octets = np.ascontiguousarray(digits.reshape(count, LANES).T, "<u8").view(np.uint8).reshape(LANES, count, 8)
    bits = np.unpackbits(octets, axis=2, bitorder="little")[:, :, :_DIGIT_BITS].reshape(LANES, -1)
    return [mpz(int.from_bytes(row.tobytes(), "little")) for row in np.packbits(bits, axis=1, bitorder="little")]
