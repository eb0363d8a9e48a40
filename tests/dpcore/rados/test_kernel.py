"""Rado sums equal sums of Python integers, in every kind of table, on one and on several threads."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcore.errors import ShapeError, SlotOverflowError
from dpcore.rados import compiled, sums
from dpcore.rados.sums import add_rado_sums, rado_sums


def naive(edges: np.ndarray, chosen: np.ndarray) -> list[list[int]]:
    """Python integers: no rounding and no overflow."""
    return (chosen.astype(object) @ edges.astype(object)).tolist()


def random_case(rows, d, rados, largest, seed):
    generator = np.random.default_rng(seed)
    edges = generator.integers(-largest, largest, size=(rows, d), endpoint=True)
    # Also extremes of one sign: cancelling sums would hide an overflow.
    edges[:, 0] = largest
    edges[:, -1] = -largest
    chosen = generator.integers(0, 2, size=(rados, rows)).astype(np.uint8)
    chosen[0] = 1
    return edges, chosen, np.packbits(chosen, axis=1, bitorder="little")


@given(
    st.integers(1, 120),
    st.integers(1, 19),
    st.integers(1, 20),
    st.sampled_from([0, 1, 1 << 16, 1 << 25, 1 << 26, (1 << 31) - 1, 1 << 31, (1 << 53) - 1, 1 << 56]),
    st.integers(0, 2**32 - 1),
    st.sampled_from([8, 40, 4096]),
    st.sampled_from([8, 256]),
    st.sampled_from([1, 1000]),
    st.booleans(),
)
@settings(deadline=None)
def test_equals_the_naive_sum(rows, d, rados, largest, seed, step_rows, least_rows, few, permutes):
    edges, chosen, packed = random_case(rows, d, rados, largest, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sums, "STEP_ROWS", step_rows)
        patch.setattr(sums, "LEAST_ROWS", least_rows)
        patch.setattr(sums, "FEW_RADOS", few)
        patch.setattr(compiled, "PERMUTES", permutes and compiled.PERMUTES)
        assert rado_sums(edges, packed).tolist() == naive(edges, chosen)
        total = np.full((rados, d), 3 - largest, dtype=np.int64)
        add_rado_sums(total, edges, np.ascontiguousarray(packed.T))
        assert (total - 3 + largest).tolist() == naive(edges, chosen)


@pytest.mark.parametrize("largest", [1 << 16, 1 << 21, 1 << 40])
@pytest.mark.parametrize("tables", ["registers", "of 16", "of 256"])
def test_many_rows_and_rados_equal_an_integer_product(largest, tables, monkeypatch):
    # More than one step of rados and of groups, and rows that end within a byte and within four groups.
    monkeypatch.setattr(sums, "FEW_RADOS", 1 << 30 if tables == "of 16" else 0)
    monkeypatch.setattr(compiled, "PERMUTES", tables == "registers" and compiled.PERMUTES)
    edges, chosen, packed = random_case(1037, 9, 2051, largest, 3)
    assert np.array_equal(rado_sums(edges, packed), chosen.astype(np.int64) @ edges)


@pytest.mark.parametrize(
    ("rows", "largest"), [(1, 1 << 31), (2, 1 << 30), (300, (1 << 31) // 300 + 1), (4096, 1 << 19)]
)
@pytest.mark.parametrize("sign", [-1, 1])
def test_sums_at_the_edge_of_int32_are_exact(rows, largest, sign):
    for value in (sign * largest, sign * (largest - 1)):
        edges = np.full((rows, 1), value, dtype=np.int64)
        packed = np.packbits(np.ones((1, rows), dtype=np.uint8), axis=1, bitorder="little")
        assert rado_sums(edges, packed).tolist() == [[rows * value]]


def test_sums_reach_both_edges_of_int64():
    most = (1 << 63) - 1
    assert rado_sums(np.full((1, 1), most), np.array([[1]], dtype=np.uint8)).tolist() == [[most]]
    assert rado_sums(np.full((1, 1), -most), np.array([[1]], dtype=np.uint8)).tolist() == [[-most]]
    total = np.full((1, 1), most - 20, dtype=np.int64)
    add_rado_sums(total, np.full((2, 1), 10), np.array([[3]], dtype=np.uint8))
    assert total.tolist() == [[most]]


def test_sums_that_may_leave_int64_are_refused():
    with pytest.raises(SlotOverflowError, match="lower fraction_bits"):
        rado_sums(np.full((2, 1), 1 << 62, dtype=np.int64), np.array([[1]], dtype=np.uint8))
    with pytest.raises(SlotOverflowError):
        rado_sums(np.full((1, 1), -(1 << 63), dtype=np.int64), np.array([[1]], dtype=np.uint8))
    for so_far in ((1 << 63) - 20, -(1 << 63)):
        total = np.full((1, 1), so_far, dtype=np.int64)
        with pytest.raises(SlotOverflowError):
            add_rado_sums(total, np.full((2, 1), 10), np.array([[0]], dtype=np.uint8))
        assert total.tolist() == [[so_far]]
    # Over all rows, not one step of them at a time.
    with pytest.raises(SlotOverflowError):
        rado_sums(np.full((8192, 1), 1 << 50, dtype=np.int64), np.zeros((1, 1024), dtype=np.uint8))


def test_four_threads_at_once_each_with_its_own_total():
    cases = [random_case(2000 + k, 5 + k, 300, 1 << (16 + 10 * k), k) for k in range(4)]
    totals = [np.zeros((300, edges.shape[1]), dtype=np.int64) for edges, _, _ in cases]

    def repeat(k: int) -> None:
        edges, _, packed = cases[k]
        for _ in range(10):
            add_rado_sums(totals[k], edges, np.ascontiguousarray(packed.T))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(repeat, range(4)))
    for (edges, chosen, _), total in zip(cases, totals, strict=True):
        assert np.array_equal(total, 10 * (chosen.astype(np.int64) @ edges))


def unaligned(array: np.ndarray) -> np.ndarray:
    moved = np.frombuffer(bytearray(array.nbytes + 1), dtype=array.dtype, offset=1, count=array.size)
    moved[:] = array.reshape(-1)
    return moved.reshape(array.shape)


def test_views_in_any_order_give_the_same():
    edges, chosen, packed = random_case(500, 6, 7, 1000, 1)
    expected = chosen.astype(np.int64) @ edges
    wide = np.zeros((500, 9), dtype=np.int64)
    wide[:, :6] = edges
    total = np.zeros((7, 6), dtype=np.int64)
    add_rado_sums(total, wide[:, :6], packed.T)
    assert np.array_equal(total, expected)
    assert np.array_equal(rado_sums(np.asfortranarray(edges), np.asfortranarray(packed)), expected)
    assert np.array_equal(rado_sums(unaligned(edges), packed), expected)
    edges.flags.writeable = packed.flags.writeable = False
    assert np.array_equal(rado_sums(edges, packed), expected)


@pytest.mark.more
def test_a_processor_without_avx_512_finds_the_same():
    script = (
        "import numpy as np; from dpcore.rados import compiled, sums; assert not compiled.PERMUTES;"
        "edges = np.arange(-99, 99).reshape(18, 11); bits = np.full((3, 70), 3, np.uint8);"
        "assert (sums.add_rado_sums(total := np.zeros((70, 11), np.int64), edges, bits) or total"
        " == edges[[0, 1, 8, 9, 16, 17]].sum(axis=0)).all()"
    )
    generic = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    run = subprocess.run([sys.executable, "-c", script], check=False, env=os.environ | generic, capture_output=True)
    assert run.returncode == 0, run.stderr


def test_no_rados_no_sums():
    assert rado_sums(np.ones((9, 2), dtype=np.int64), np.zeros((0, 2), dtype=np.uint8)).shape == (0, 2)


@pytest.mark.parametrize(
    ("edges", "selection"),
    [
        (np.ones((9, 2), dtype=np.int64), np.zeros((1, 1), dtype=np.uint8)),
        (np.ones((9, 2), dtype=np.int32), np.zeros((1, 2), dtype=np.uint8)),
        (np.ones((9, 2), dtype=np.int64), np.zeros((1, 2), dtype=np.int64)),
        (np.ones((9, 2), dtype=np.int64), np.zeros(2, dtype=np.uint8)),
        (np.ones((0, 2), dtype=np.int64), np.zeros((1, 0), dtype=np.uint8)),
        (np.ones((9, 2), dtype=np.int64), np.array([[0, 2]], dtype=np.uint8)),
    ],
)
def test_arrays_that_do_not_fit_are_refused(edges, selection):
    with pytest.raises(ShapeError):
        rado_sums(edges, selection)
    with pytest.raises(ShapeError):
        add_rado_sums(np.zeros((1, 2), dtype=np.int64), edges, selection.T)


def read_only() -> np.ndarray:
    total = np.zeros((3, 2), dtype=np.int64)
    total.flags.writeable = False
    return total


@pytest.mark.parametrize(
    "total",
    [
        np.zeros((2, 2), dtype=np.int64),
        np.zeros((3, 3), dtype=np.int64),
        np.zeros((3, 2), dtype=np.int32),
        np.zeros((3, 2), dtype=np.int64, order="F"),
        np.zeros((3, 4), dtype=np.int64)[:, :2],
        read_only(),
        unaligned(np.zeros((3, 2), dtype=np.int64)),
    ],
)
def test_totals_that_do_not_fit_are_refused(total):
    with pytest.raises(ShapeError, match="total"):
        add_rado_sums(total, np.ones((9, 2), dtype=np.int64), np.ones((2, 3), dtype=np.uint8))
    assert not total.any()


def test_numba_is_loaded_only_to_compute():
    modules = "dpcore.rados.sums, dpcore.records.records, dpcore.queries.rados"
    script = f"import sys, {modules}; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
