"""The compiled steps on bits agree with NumPy, whatever the rows, columns and steps."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.predicates import compiled
from dpcore.predicates.bits import WORD_ROWS, Bit, BitProgram, BitStep
from dpcore.predicates.compiled import shared_bits

GIVEN = (-1, -2)
"""Results that steps read and that none of them makes."""


def test_operations_are_those_of_the_compiled_code():
    assert {each.name: each.value for each in Bit} == {each.name: getattr(compiled, each.name) for each in Bit}
    assert compiled.WORD_ROWS == WORD_ROWS


def packed(masks: np.ndarray) -> np.ndarray:
    """(k, rows) as (k, words)."""
    padded = np.pad(masks, ((0, 0), (0, -masks.shape[1] % WORD_ROWS)))
    return np.packbits(padded, axis=1, bitorder="little").view(np.uint64)


def unpacked(bits: np.ndarray, rows: int) -> np.ndarray:
    return np.unpackbits(bits.view(np.uint8), count=rows, bitorder="little").astype(bool)


def by_numpy(step: BitStep, features: np.ndarray, columns: tuple[int, ...], known: dict[int, np.ndarray]) -> np.ndarray:
    match step.operation, [known[read] for read in step.reads]:
        case Bit.AT_LEAST, _:
            column, least = step.numbers
            return features[:, columns[column]] >= least
        case Bit.BOTH, [first, second]:
            return first & second
        case Bit.EITHER, [first, second]:
            return first | second
        case Bit.COMPLEMENT, [first]:
            return ~first
        case _:
            return np.ones(len(features), dtype=bool)


@st.composite
def programs(draw, columns: int) -> BitProgram:
    steps = []
    for place in range(draw(st.integers(1, 25))):
        earlier = st.sampled_from([*GIVEN, *range(place)])
        operation = draw(st.sampled_from([each for each in Bit if each != Bit.GIVEN]))
        numbers = (draw(st.integers(0, columns - 1)), draw(st.integers(-3, 3))) if operation == Bit.AT_LEAST else ()
        reads = {Bit.BOTH: 2, Bit.EITHER: 2, Bit.COMPLEMENT: 1}.get(operation, 0)
        steps.append(BitStep(place, operation, numbers, tuple(draw(earlier) for _ in range(reads))))
    some = st.sets(st.integers(0, len(steps) - 1)).map(lambda places: tuple(sorted(places)))
    return BitProgram(tuple(steps), tuple(reversed(range(columns))), draw(some), draw(some))


@given(st.data(), st.sampled_from([1, 63, 64, 65, 4095, 4096, 4097, 9000]), st.sampled_from([1, 3, 40]))
def test_counts_and_bits_are_those_of_numpy(data, rows, columns):
    program = data.draw(programs(columns))
    random = np.random.default_rng(rows)
    features = random.integers(-3, 4, (rows, columns), dtype=np.int32)
    usable, *given_ = random.random((1 + len(GIVEN), rows)) < 0.6
    known = dict(zip(GIVEN, given_, strict=True))
    bits = dict(zip(GIVEN, packed(np.array(given_)), strict=True))
    for step in program.steps:
        known[step.place] = by_numpy(step, features, program.columns, known)
    counts, kept = program.run(features, packed(usable[np.newaxis])[0], bits)
    assert counts == {place: int((known[place] & usable).sum()) for place in program.counted}
    assert kept.keys() == set(program.kept)
    assert all((unpacked(found, rows) == known[place]).all() for place, found in kept.items())


def test_bounds_at_the_ends_of_coordinates():
    ends = np.array([[-(2**30)], [2**30], [0]], dtype=np.int32)
    steps = tuple(BitStep(i, Bit.AT_LEAST, (0, least), ()) for i, least in enumerate((-(2**30), 2**30, 2**30 + 1)))
    counts, _ = BitProgram(steps, (0,), (0, 1, 2), ()).run(ends, packed(np.ones((1, 3), dtype=bool))[0], {})
    assert counts == {0: 3, 1: 1, 2: 0}


def test_features_in_another_order_are_read_as_they_are():
    features = np.asfortranarray(np.random.default_rng(5).integers(-9, 9, (500, 3), dtype=np.int32))
    program = BitProgram((BitStep(0, Bit.AT_LEAST, (0, 2), ()),), (1,), (0,), ())
    counts, _ = program.run(features, packed(np.ones((1, 500), dtype=bool))[0], {})
    assert counts == {0: int((features[:, 1] >= 2).sum())}


@pytest.mark.parametrize("order", ["other", "unaligned"])
def test_features_that_are_copied_are_those_that_are_needed(order):
    """So that a block of a wide table takes no more memory than its parts in use."""
    whole = np.random.default_rng(5).integers(-9, 9, (4096, 500), dtype=np.int32)
    if order == "other":
        features = np.asfortranarray(whole)
    else:
        features = np.frombuffer(b"\0" + whole.tobytes(), dtype=np.int32, offset=1).reshape(whole.shape)
    program = BitProgram((BitStep(0, Bit.AT_LEAST, (0, 2), ()),), (7,), (0,), ())
    usable = packed(np.ones((1, len(whole)), dtype=bool))[0]
    program.run(whole, usable, {})
    tracemalloc.start()
    counts, _ = program.run(features, usable, {})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert counts == {0: int((whole[:, 7] >= 2).sum())}
    assert peak < whole.nbytes // 50


def test_compiled_code_reads_nothing_beyond_its_arrays():
    features, usable = np.zeros((65, 2), dtype=np.int32), np.zeros(2, dtype=np.uint64)
    compared = BitProgram((BitStep(0, Bit.AT_LEAST, (0, 0), ()),), (2,), (0,), ())
    joined = BitProgram((BitStep(0, Bit.COMPLEMENT, (), (-1,)),), (), (0,), ())
    with pytest.raises(AssertionError, match="columns are some of the features"):
        compared.run(features, usable, {})
    with pytest.raises(AssertionError, match="usable has a bit for each row"):
        joined.run(features, usable[:1], {-1: usable})
    with pytest.raises(AssertionError, match="given bits are of the same rows"):
        joined.run(features, usable, {-1: usable[:1]})


def test_tiles_stay_small_and_slots_are_used_again():
    """So that a batch's tile fits a core's cache."""
    long = [BitStep(0, Bit.AT_LEAST, (0, 0), ())]
    for place in range(1, 2001, 2):
        long += [BitStep(place, Bit.AT_LEAST, (0, place), ()), BitStep(place + 1, Bit.BOTH, (), (place - 1, place))]
    code, slots = BitProgram(tuple(long), (0,), (2000,), ())._code
    assert (len(code), slots) == (2001, 3)
    rows = [BitProgram((), tuple(range(columns)), (), ()).tile_rows for columns in (0, 1, 32, 100, 20_000)]
    assert rows == [4096, 4096, 4096, 1280, 64]


@pytest.mark.parametrize("words", [0, 1, 3, 1000])
def test_shared_bits_are_counted(words):
    first, second = np.random.default_rng(words).integers(0, 1 << 64, size=(2, words), dtype=np.uint64)
    second[::2] = ~np.uint64(0)
    assert shared_bits(first, second) == int(np.bitwise_count(first & second).sum())
