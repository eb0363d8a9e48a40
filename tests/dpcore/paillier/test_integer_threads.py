"""Ranges of work on threads: order, errors, and the gmpy2 contexts that change."""

import threading
import time

import gmpy2
import pytest

from dpcore.numbers.processors import processors
from dpcore.paillier.public import even_ranges, lock_released, over_ranges
from tests.waiting import HANG_S


@pytest.mark.parametrize("threads", [None, 1, 2, 7])
@pytest.mark.parametrize(("count", "size"), [(0, 3), (1, 3), (3, 3), (10, 3), (10, 1), (10, 50)])
def test_ranges_cover_all_in_order(threads, count, size):
    found = list(over_ranges(lambda start, stop: list(range(start, stop)), count, size=size, threads=threads))
    assert [index for part in found for index in part] == list(range(count))
    assert all(0 < len(part) <= size for part in found)


@pytest.mark.parametrize("threads", [2, 3])
def test_several_threads_work_at_once(threads):
    barrier = threading.Barrier(threads)
    list(over_ranges(lambda _start, _stop: barrier.wait(HANG_S), threads, size=1, threads=threads))


@pytest.mark.parametrize("threads", [2, 3])
def test_no_more_threads_work_than_are_asked_for(threads):
    def work(_start, _stop):
        time.sleep(0.005)
        return threading.get_ident()

    assert len(set(over_ranges(work, 9, size=1, threads=threads))) <= threads


@pytest.mark.parametrize(("count", "threads"), [(5, 1), (1, 3)])
def test_one_thread_or_one_range_is_worked_on_by_the_caller(count, threads):
    found = over_ranges(lambda _start, _stop: threading.get_ident(), count, size=1, threads=threads)
    assert list(found) == [threading.get_ident()] * count


@pytest.mark.parametrize("threads", [1, 2])
def test_the_first_failure_is_raised_and_ends_the_work(threads):
    begun = []

    def work(start, _):
        begun.append(start)
        if start in (3, 5):
            raise KeyError(start)
        return start

    with pytest.raises(KeyError, match="3"):
        list(over_ranges(work, 5000, size=1, threads=threads))
    assert len(begun) < 5000


@pytest.mark.parametrize(("size", "threads"), [(0, 1), (1, 0)])
def test_sizes_below_one_are_refused(size, threads):
    with pytest.raises(ValueError, match="at least 1"):
        list(over_ranges(lambda start, stop: stop - start, 4, size=size, threads=threads))


@pytest.mark.parametrize("threads", [1, 2])
def test_the_lock_is_released_only_inside(threads):
    inside = over_ranges(lambda _start, _stop: gmpy2.get_context().allow_release_gil, 4, size=1, threads=threads)
    assert list(inside) == [True] * 4
    with lock_released():
        elsewhere = []
        other = threading.Thread(target=lambda: elsewhere.append(gmpy2.get_context().allow_release_gil))
        other.start()
        other.join()
        assert (gmpy2.get_context().allow_release_gil, elsewhere) == (True, [False])
    assert not gmpy2.get_context().allow_release_gil


@pytest.mark.parametrize(("count", "parts"), [(10, 3), (3, 3), (1, 1), (0, 1)])
def test_even_ranges(count, parts):
    ranges = even_ranges(count, parts)
    assert [index for part in ranges for index in part] == list(range(count))
    assert max(map(len, ranges)) - min(map(len, ranges)) <= 1


def test_there_is_a_processor():
    assert processors() >= 1
