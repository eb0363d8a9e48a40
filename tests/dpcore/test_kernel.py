import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcore.errors import ShapeError, SlotOverflowError
from dpcore.rados import kernel
from dpcore.rados.kernel import rado_sums


def naive(edges: np.ndarray, chosen: np.ndarray) -> list[list[int]]:
    """Python integers, one row at a time: no rounding and no overflow."""
    return [
        [sum(int(edges[i, j]) for i in range(len(edges)) if row[i]) for j in range(edges.shape[1])] for row in chosen
    ]


def random_case(rows, d, rados, largest, seed):
    generator = np.random.default_rng(seed)
    edges = generator.integers(-largest, largest, size=(rows, d), endpoint=True)
    chosen = generator.integers(0, 2, size=(rados, rows)).astype(np.uint8)
    return edges, chosen, np.packbits(chosen, axis=1, bitorder="little")


@given(
    st.integers(1, 50),
    st.integers(1, 4),
    st.integers(1, 12),
    st.sampled_from([1, 1 << 16, 1 << 30, (1 << 53) - 1, 1 << 56]),
    st.integers(0, 2**32 - 1),
    st.sampled_from([8, 16, 4096]),
    st.sampled_from([1, 5, 1024]),
)
@settings(deadline=None)
def test_equals_the_naive_sum(rows, d, rados, largest, seed, step_rows, step_rados):
    edges, chosen, packed = random_case(rows, d, rados, largest, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "STEP_ROWS", step_rows)
        patch.setattr(kernel, "STEP_RADOS", step_rados)
        assert rado_sums(edges, packed).tolist() == naive(edges, chosen)


def test_values_that_doubles_cannot_add_are_added_as_integers():
    edges = np.array([[1 << 60], [1], [1]], dtype=np.int64)
    assert rado_sums(edges, np.array([[0b111]], dtype=np.uint8)).tolist() == [[(1 << 60) + 2]]
    # What the guard is for: the same sum in doubles loses both ones.
    assert int(edges.astype(np.float64).sum()) != (1 << 60) + 2


def test_the_double_path_is_exact_at_its_edge():
    edges = np.full((2, 1), (1 << 52) - 1, dtype=np.int64)
    assert rado_sums(edges, np.array([[0b11], [0b10]], dtype=np.uint8)).tolist() == [[(1 << 53) - 2], [(1 << 52) - 1]]


def test_a_large_case_equals_an_integer_product():
    edges, chosen, packed = random_case(9001, 7, 1100, 1 << 16, 3)
    assert np.array_equal(rado_sums(edges, packed), chosen.astype(np.int64) @ edges)


def test_sums_that_may_leave_int64_are_refused():
    with pytest.raises(SlotOverflowError, match="lower fraction_bits"):
        rado_sums(np.full((2, 1), 1 << 62, dtype=np.int64), np.array([[1]], dtype=np.uint8))
    with pytest.raises(SlotOverflowError):
        rado_sums(np.full((1, 1), -(1 << 63), dtype=np.int64), np.array([[1]], dtype=np.uint8))


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
