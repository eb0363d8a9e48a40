"""Sums over rows: independent of the number of threads, with progress, and stopped on request."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest

from dpcore.errors import SlotOverflowError
from dpcore.numbers.processors import processors
from dpcore.records import computation
from dpcore.records.computation import RUN_BLOCKS, add_exactly, on_threads, sum_on_threads
from dpcore.records.records import BLOCK_ROWS, Records
from tests.waiting import HANG_S


def numbered(rows: int) -> Records:
    """Row i has i + 1 as its first feature."""
    features = np.stack([np.arange(1, rows + 1), np.zeros(rows)], axis=1).astype(np.int32)
    return Records(features, np.ones(rows, np.int8), np.ones(rows, bool))


@dataclass(frozen=True)
class Numbers:
    """Adds the rows' numbers, and the counts of runs, rows and misplaced rows."""

    shape: tuple[int, ...] = (4,)

    def add(self, total, records, first_row):
        numbers = records.features[:, 0].astype(np.int64)
        misplaced = np.count_nonzero(numbers != first_row + 1 + np.arange(records.rows))
        total += (numbers.sum(), 1, records.rows, misplaced + (first_row % BLOCK_ROWS))


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("rows", [1, BLOCK_ROWS, BLOCK_ROWS + 1, 50 * BLOCK_ROWS + 3])
def test_every_row_is_added_once_in_its_place(rows, threads, monkeypatch):
    monkeypatch.setattr(computation, "processors", lambda: threads)
    reported = []
    numbers, runs, added, misplaced = sum_on_threads(Numbers(), numbered(rows), lambda *at: reported.append(at))
    assert numbers == rows * (rows + 1) // 2
    assert (added, misplaced) == (rows, 0)
    assert runs == len(reported)
    assert [done for done, _ in reported] == sorted({done for done, _ in reported})
    assert reported[-1] == (rows, rows)
    blocks = -(-rows // BLOCK_ROWS)
    # Enough runs for all threads, and none longer than documented.
    assert runs >= min(blocks, 4 * threads)
    assert runs >= blocks / RUN_BLOCKS


class Held:
    """Adds nothing, and waits for a given number of threads."""

    shape = (1,)

    def __init__(self, threads: int) -> None:
        self.barrier = threading.Barrier(threads, timeout=HANG_S)
        self.names: set[str] = set()

    def add(self, total, records, first_row):
        self.names.add(threading.current_thread().name)
        self.barrier.wait()


def test_there_is_a_thread_for_each_processor_and_none_for_one_run(monkeypatch):
    monkeypatch.setattr(computation, "processors", lambda: 3)
    part = Held(3)
    sum_on_threads(part, numbered(6 * BLOCK_ROWS))
    assert len(part.names) == 3
    alone = Held(1)
    sum_on_threads(alone, numbered(BLOCK_ROWS))
    assert alone.names == {threading.current_thread().name}
    assert processors() >= 1


@pytest.fixture
def gate(monkeypatch) -> threading.Event:
    """Opened when a pool of threads shuts down; items that have not started must be cancelled by then."""
    opened = threading.Event()

    class Pool(ThreadPoolExecutor):
        def shutdown(self, wait=True, *, cancel_futures=False):
            opened.set()
            super().shutdown(wait=wait, cancel_futures=cancel_futures)

    monkeypatch.setattr(computation, "ThreadPoolExecutor", Pool)
    monkeypatch.setattr(computation, "processors", lambda: 4)
    return opened


def test_an_error_in_a_part_ends_the_work(gate, monkeypatch):
    monkeypatch.setattr(computation, "RUN_BLOCKS", 1)
    before, begun = set(threading.enumerate()), []

    class Broken:
        shape = (1,)

        def add(self, total, records, first_row):
            begun.append(first_row)
            if first_row == 2 * BLOCK_ROWS:
                raise ZeroDivisionError
            if first_row > 2 * BLOCK_ROWS:
                assert gate.wait(HANG_S)

    with pytest.raises(ZeroDivisionError):
        sum_on_threads(Broken(), numbered(100 * BLOCK_ROWS))
    assert set(threading.enumerate()) <= before
    assert len(begun) <= 3 + 4


def test_closing_the_results_stops_the_work(gate):
    before, begun = set(threading.enumerate()), []

    def work(item: int) -> int:
        begun.append(item)
        assert item < 5 or gate.wait(HANG_S)
        return item

    results = on_threads(work, range(1000))
    assert [next(results) for _ in range(5)] == [0, 1, 2, 3, 4]
    results.close()
    assert len(begun) <= 5 + 4
    assert set(threading.enumerate()) <= before


def test_on_one_processor_closing_the_results_stops_the_work(monkeypatch):
    monkeypatch.setattr(computation, "processors", lambda: 1)
    begun: list[int] = []
    results = on_threads(begun.append, range(1000))
    next(results)
    results.close()
    assert begun == [0]


@dataclass(frozen=True)
class Huge:
    """Adds `value` for the first row of each block: exact for one block, and for two beyond int64 where value says."""

    value: int
    barrier: threading.Barrier
    shape: tuple[int, ...] = (1,)

    def add(self, total, records, first_row):
        # Both threads have started, so that neither gets the other's total.
        self.barrier.wait()
        total += self.value


@pytest.mark.parametrize("value", [1 << 62, -(1 << 62)])
def test_exact_sums_of_threads_whose_sum_is_not_exact_are_refused(value, monkeypatch):
    monkeypatch.setattr(computation, "processors", lambda: 2)
    with pytest.raises(SlotOverflowError):
        sum_on_threads(Huge(value, threading.Barrier(2, timeout=HANG_S)), numbered(2 * BLOCK_ROWS))
    less = value - (1 if value > 0 else -1)
    total = sum_on_threads(Huge(less, threading.Barrier(2, timeout=HANG_S)), numbered(2 * BLOCK_ROWS))
    assert total.tolist() == [2 * less]


def test_a_total_that_would_overflow_is_unchanged():
    total = np.array([1, np.iinfo(np.int64).max])
    with pytest.raises(SlotOverflowError):
        add_exactly(total, np.array([0, 1]))
    assert total.tolist() == [1, np.iinfo(np.int64).max]
    add_exactly(total, np.array([0, 0]))
    add_exactly(np.zeros((0, 2), dtype=np.int64), np.zeros((0, 2), dtype=np.int64))
