"""A pool never returns an obfuscator twice, also with threads, forks, failures and new processes."""

import copy
import gc
import os
import pickle
import select
import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from dpcore.errors import CiphertextError, ConfigurationError, PlanError
from dpcore.paillier import obfuscation as pool_module
from dpcore.paillier.obfuscation import MOST_READY, ObfuscatorPool
from dpcore.paillier.secret import SecretKey
from dpcore.randomness.sources import SeededRandom, SeededRandomRefusedError, SystemRandom
from tests.waiting import HANG_S, wait_until

TEST_KEY = SecretKey.generate_test_key(SeededRandom(b"pool"), bits=512)
PUBLIC = TEST_KEY.public_key


@pytest.fixture
def pool():
    with ObfuscatorPool(PUBLIC, SystemRandom()) as made:
        yield made


def filled(pool, count):
    pool.prepare(count)
    wait_until(lambda: pool.ready == count)
    return pool


def in_child(work, timeout_s=HANG_S):
    """The ciphertexts that work() returns in a forked child. Fails if the child hangs or dies."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.write(writer, PUBLIC.to_wire(work()))
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    octets = b""
    with os.fdopen(reader, "rb", buffering=0) as pipe:
        while True:
            if not select.select([pipe], [], [], timeout_s)[0]:
                os.kill(child, 9)
                os.waitpid(child, 0)
                raise AssertionError("the child hangs")
            part = pipe.read(1 << 16)
            if not part:
                break
            octets += part
    assert os.waitpid(child, 0)[1] == 0
    return PUBLIC.from_wire(octets)


def test_draws_are_fresh_obfuscators(pool):
    filled(pool, 40)
    drawn = pool.draw_many(50)
    assert TEST_KEY.decrypt_many(drawn) == [0] * 50
    assert len(set(drawn)) == 50
    assert pool.ready == 0
    assert pool.public_key == PUBLIC
    assert pool.draw_many(0) == []


def test_an_entry_leaves_before_it_is_returned(pool):
    filled(pool, 30)
    entries = set(pool._stock().entries)
    drawn = pool.draw_many(10)
    assert set(drawn) < entries
    assert set(pool._stock().entries) == entries - set(drawn)


def test_many_threads_draw_while_it_is_filled(pool):
    pool.prepare(800)

    def draw(_):
        drawn = []
        for _ in range(20):
            pool.prepare(15)
            drawn += pool.draw_many(5)
        return drawn

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(8) as threads:
            drawn = [obfuscator for part in threads.map(draw, range(8)) for obfuscator in part]
    finally:
        sys.setswitchinterval(interval)
    assert len(drawn) == 800
    assert len({*drawn, *pool._stock().entries}) == 800 + pool.ready


def test_of_one_entry_and_two_takers_one_gets_it(pool):
    """A taker that is interrupted between any two steps has either removed an entry or not seen it."""
    stock = filled(pool, 20)._stock()
    seen = []

    def interrupt(_frame, event, _argument):
        if event == "line" and len(seen) < 15:
            sys.settrace(None)
            frame.f_trace = None
            seen.append(stock.entries.pop())
            frame.f_trace = interrupt
            sys.settrace(interrupt)
        return interrupt

    frame = sys._getframe()
    sys.settrace(interrupt)
    try:
        taken = stock.take(20)
    finally:
        sys.settrace(None)
        frame.f_trace = None
    assert seen
    assert len({*taken, *seen}) == len(taken) + len(seen) == 20


def test_a_forked_child_finds_an_empty_pool_and_fills_its_own(pool):
    filled(pool, 30)
    entries = set(pool._stock().entries)

    def child():
        assert pool.ready == 0
        filled(pool, 20)
        return pool.draw_many(25)

    from_child = in_child(child)
    assert len(set(from_child)) == 25
    assert not set(from_child) & (entries | set(pool.draw_many(60)))
    assert TEST_KEY.decrypt_many(from_child) == [0] * 25


def test_two_children_and_a_grandchild_draw_nothing_twice(pool):
    filled(pool, 10)

    def child():
        return [*pool.draw_many(5), *in_child(lambda: pool.draw_many(5))]

    drawn = [*in_child(child), *in_child(child), *pool.draw_many(15)]
    assert len(set(drawn)) == 35


def test_a_process_id_that_comes_back_finds_nothing(pool, monkeypatch):
    filled(pool, 10)
    parent = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: parent)

    def child():
        assert pool.ready == 0
        return pool.draw_many(10)

    assert not set(in_child(child)) & set(pool.draw_many(10))


def test_a_fork_while_another_thread_holds_the_lock_does_not_hang_the_child(pool):
    filled(pool, 5)
    held, go_on = threading.Event(), threading.Event()

    def hold():
        with pool._stock().changed:
            held.set()
            go_on.wait(HANG_S)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(HANG_S)
    try:
        assert len(in_child(lambda: filled(pool, 5).draw_many(7))) == 7
    finally:
        go_on.set()
        holder.join()


@pytest.mark.more
def test_a_fork_while_the_table_is_built_does_not_hang_the_child(pool):
    with pool._source._building:
        assert len(set(in_child(lambda: pool.draw_many(2000)))) == 2000


@pytest.mark.more
def test_forks_while_it_is_filled(pool):
    pool.prepare(2000)
    children = [in_child(lambda: pool.draw_many(20)) for _ in range(8)]
    drawn = [*pool.draw_many(2000), *(obfuscator for child in children for obfuscator in child)]
    assert len(set(drawn)) == 2160


def test_a_fork_in_the_middle_of_a_draw_gives_each_process_its_own(pool, monkeypatch):
    """As a signal handler may fork: both processes return from the same draw."""
    filled(pool, 10)
    real, reader_writer = pool._drawn, os.pipe()
    forked = []

    def drawn(count):
        found = real(count)
        if not forked:
            forked.append(os.fork())
        return found

    monkeypatch.setattr(pool, "_drawn", drawn)
    found = pool.draw_many(8)
    if forked[0] == 0:
        os.write(reader_writer[1], PUBLIC.to_wire(found))
        os._exit(0)
    os.close(reader_writer[1])
    with os.fdopen(reader_writer[0], "rb") as pipe:
        from_child = PUBLIC.from_wire(pipe.read())
    assert os.waitpid(forked[0], 0)[1] == 0
    assert len(from_child) == len(found) == 8
    assert not set(from_child) & set(found)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps], ids=lambda f: f.__name__)
def test_it_is_neither_copied_nor_pickled(pool, duplicate):
    with pytest.raises(ConfigurationError, match="single-use"):
        duplicate(pool)


def test_an_encryption_that_fails_half_way_loses_what_it_drew(pool):
    filled(pool, 20)
    entries = set(pool._stock().entries)
    with pytest.raises(CiphertextError, match="not in"):
        PUBLIC.encrypt_many([1, 2, PUBLIC.n], pool)
    assert pool.ready == 17
    lost = entries - set(pool._stock().entries)
    assert len(lost) == 3
    assert not lost & set(pool.draw_many(40))


def test_encryptions_from_it_open(pool):
    filled(pool, 5)
    assert TEST_KEY.decrypt_many(PUBLIC.encrypt_many(list(range(8)), pool)) == list(range(8))


def test_only_requested_entries_are_made(pool):
    pool.prepare(0)
    pool.draw_many(20)
    assert pool._stock().filler is None
    filled(pool, 20)
    assert pool._stock().filler.daemon
    pool.draw_many(12)
    # Eight are still expected and ready; drawn entries are not replaced.
    assert (pool.ready, pool._stock().missing) == (8, 0)
    pool.prepare(8)
    assert pool._stock().missing == 0
    pool.draw_many(8)
    pool.prepare(0)
    assert pool._stock().missing == 0
    pool.keep(6)
    wait_until(lambda: pool.ready == 6)
    pool.prepare(4)
    pool.draw_many(4)
    assert (pool.ready, pool._stock().needed, pool._stock().kept) == (2, 0, 0)
    pool.keep(5)
    wait_until(lambda: pool.ready == 5)
    assert (pool._stock().needed, pool._stock().kept) == (0, 5)


def test_the_number_of_kept_entries_is_bounded(pool, monkeypatch):
    stock = pool._stock()
    for ask in (pool.prepare, pool.keep):
        with stock.changed:
            ask(10**9)
            assert stock.missing <= MOST_READY
        with pytest.raises(ValueError, match="0 or more"):
            ask(-1)
    pool.keep(0)
    monkeypatch.setattr(pool_module, "MOST_READY", pool.ready + 5)
    pool.prepare(10**9)
    wait_until(lambda: stock.missing <= 0)
    assert pool.ready <= pool_module.MOST_READY + 16
    with pytest.raises(ValueError, match="0 or more"):
        pool.draw_many(-1)


def test_closing_ends_the_thread_and_discards_all_entries(pool):
    filled(pool, 10)
    entries = set(pool._stock().entries)
    filler = pool._stock().filler
    pool.prepare(5000)
    pool.close()
    assert not filler.is_alive()
    assert pool.ready == 0
    pool.prepare(10)
    assert not pool._stock().filler.is_alive()
    drawn = pool.draw_many(10)
    assert not set(drawn) & entries
    pool.close()


@pytest.mark.more
def test_a_pool_that_was_never_closed_ends_its_thread():
    pool = filled(ObfuscatorPool(PUBLIC, SystemRandom()), 3)
    filler = pool._stock().filler
    del pool
    gc.collect()
    filler.join(HANG_S)
    assert not filler.is_alive()


@pytest.mark.more
def test_a_child_may_release_a_pool_whose_lock_its_parent_held():
    pools = [filled(ObfuscatorPool(PUBLIC, SystemRandom()), 3)]
    held, go_on = threading.Event(), threading.Event()

    def hold(stock):
        with stock.changed:
            held.set()
            go_on.wait(HANG_S)

    holder = threading.Thread(target=hold, args=[pools[0]._stock()])
    holder.start()
    held.wait(HANG_S)

    def child():
        pools.clear()
        gc.collect()
        return [1]

    try:
        assert in_child(child) == [1]
    finally:
        go_on.set()
        holder.join()


def test_a_thread_that_fails_is_replaced_and_draws_go_on(pool, monkeypatch):
    real, failures = pool._source.draw_many, [1]

    def failing(count):
        if threading.current_thread().name == "obfuscators" and failures[0]:
            failures[0] -= 1
            raise OSError("no randomness")
        return real(count)

    raised = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    monkeypatch.setattr(pool._source, "draw_many", failing)
    pool.prepare(5)
    wait_until(lambda: raised)
    pool._stock().filler.join()
    assert len(set(pool.draw_many(5))) == 5
    filled(pool, 6)


def test_only_the_systems_randomness_is_accepted():
    with pytest.raises(SeededRandomRefusedError):
        ObfuscatorPool(PUBLIC, SeededRandom(1))
    with pytest.raises(PlanError, match="512"):
        ObfuscatorPool(PUBLIC, SystemRandom(), short_exponent_bits=511)


def test_it_prints_how_many_are_ready_and_none_of_them(pool):
    assert repr(filled(pool, 3)) == f"ObfuscatorPool({PUBLIC!r}, ready=3)"


_PROCESS = """
import os, sys
written = []
sys.addaudithook(lambda event, args: written.append(args) if event == "open" and args[2] and args[2] & 3 else None)
from dpcore.paillier.obfuscation import ObfuscatorPool
from dpcore.paillier.public import PublicKey
from dpcore.randomness.sources import SystemRandom
key = PublicKey.for_tests(int(sys.argv[1]))
pool = ObfuscatorPool(key, SystemRandom())
pool.prepare(60000)
print(pool.ready)
print(key.to_wire(pool.draw_many(40)).hex())
print(written)
"""


def test_a_new_process_starts_empty_writes_nothing_and_is_not_kept_alive():
    """Sixty thousand entries are still being made when the process ends."""
    drawn = set()
    for _ in range(2):
        ended = subprocess.run(
            [sys.executable, "-c", _PROCESS, str(PUBLIC.n)], capture_output=True, text=True, timeout=HANG_S, check=True
        )
        ready, octets, written = ended.stdout.splitlines()
        assert int(ready) < 1000
        assert written == "[]"
        assert ended.stderr == ""
        drawn |= set(PUBLIC.from_wire(bytes.fromhex(octets)))
    assert len(drawn) == 80


def test_a_draw_from_a_pool_that_has_enough_computes_nothing(pool, monkeypatch):
    filled(pool, 5)
    computed = []
    monkeypatch.setattr(pool._source, "prepare", computed.append)
    monkeypatch.setattr(pool._source, "draw_many", computed.append)
    assert len(pool.draw_many(5)) == 5
    assert computed == []


def test_a_draw_prepares_for_what_the_pool_does_not_have(pool, monkeypatch):
    filled(pool, 5)
    prepared, prepare = [], pool._source.prepare
    monkeypatch.setattr(pool._source, "prepare", lambda count: prepared.append(count) or prepare(count))
    assert len(pool.draw_many(8)) == 8
    # Then for the single batch.
    assert prepared == [3, 3]


def test_the_end_of_a_process_takes_no_lock_of_a_pool(pool, monkeypatch):
    """Another thread may hold it and never return it."""
    made = []

    def noted(*given):
        made.append(weakref.finalize(*given))
        return made[-1]

    monkeypatch.setattr(pool_module, "weakref", SimpleNamespace(finalize=noted))
    filled(pool, 1)
    assert [each.atexit for each in made] == [False]


def test_two_threads_of_a_child_may_drop_its_parent_s_entries_at_once(pool):
    class Shared(dict):
        """Another thread removes the entries between the look and the removal."""

        def __iter__(self):
            found = [*self.keys()]
            self.pop((1, 1), None)
            return iter(found)

    pool._stocks = Shared({(1, 1): pool_module._Stock((1, 1))})
    assert pool.ready == 0
    assert [*pool._stocks.keys()] == [pool_module.this_process()]
