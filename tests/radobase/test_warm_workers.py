"""Workers that stay: who does what, and what a node makes of the driver's messages. No Ray is started here."""

import socket
import threading
from contextlib import closing, suppress
from multiprocessing.connection import Pipe

import pytest

from radobase.cluster_jobs import ATTEMPTS, ClusterError, ClusterSettings
from radobase.version import program_version
from radobase.warm_workers import WarmWorker, WarmWorkers, machine_of
from tests.waiting import HANG_S

SETTINGS = ClusterSettings(address="127.0.0.1:1", workers=2, timeout_s=HANG_S)
ADA, BOB = "north/1/a", "north/2/b"


class Spoken(WarmWorkers):
    """Its driver is the test."""

    def __init__(self):
        super().__init__(SETTINGS)
        self.drivers = []

    def _start(self):
        self._connection, driver = Pipe()
        self.drivers.append(driver)
        for message in (("ready", None), ("workers", 2), ("worker", (0, ADA)), ("worker", (1, BOB))):
            driver.send(message)


@pytest.fixture
def workers(monkeypatch):
    monkeypatch.setattr("radobase.cluster_jobs.require_ray", lambda: None)
    found = Spoken()
    yield found
    found.close()


def doubled(state, shared, payload):
    return shared * payload


def results(workers, count, owner=lambda _: None, idle=lambda: None):
    """The results of a job, one after another."""
    return workers.results(doubled, 2, count, lambda number, name: (number, name), owner, idle)


def said(driver):
    """What the node has said to the driver, without the start."""
    found = []
    with suppress(EOFError, OSError):
        while driver.poll(0.05):
            found.append(driver.recv())
    return [each for each in found if each[0] in {"job", "item"}]


def answer(driver, job, number, name, value="done"):
    driver.send(("item", (job, number, True, (name, value))))


def in_background(function):
    found = []
    thread = threading.Thread(target=lambda: found.append(function()), daemon=True)
    thread.start()
    return thread, found


def served(workers, count, reply, owner=lambda _: None):
    """All results, if the driver makes of each item what `reply(driver, job, place, number)` sends."""
    thread, found = in_background(lambda: list(results(workers, count, owner)))
    while not workers.drivers:
        pass
    while thread.is_alive():
        for kind, content in said(workers.drivers[-1]):
            if kind == "item":
                place, job, number, _ = content
                reply(workers.drivers[-1], job, place, number)
    assert found, "the job failed"
    return found[0]


def test_each_worker_does_what_it_owns_and_others_the_rest(workers):
    done = {}

    def reply(driver, job, place, number):
        done[number] = place
        answer(driver, job, number, (ADA, BOB)[place])

    served(workers, 2, reply)
    owners = [BOB, BOB, ADA, None, "gone/1/x", BOB]
    found = served(workers, len(owners), reply, owners.__getitem__)
    assert sorted(number for number, *_ in found) == list(range(6))
    assert all(done[number] == (ADA, BOB).index(name) for number, name in enumerate(owners) if name in {ADA, BOB})
    assert all((ADA, BOB)[done[number]] == name for number, name, _ in found)


def test_what_a_lost_worker_owned_is_done_by_others_and_the_next_one(workers):
    lost = []

    def reply(driver, job, place, number):
        if place == 1 and not lost:
            lost.append(number)
            driver.send(("gone", (1, "killed")))
            driver.send(("item", (job, number, False, "killed")))
        elif place == 1 and number not in lost:
            lost.append(number)
            driver.send(("item", (job, number, False, "killed")))
        else:
            answer(driver, job, number, ADA)

    assert served(workers, 2, lambda driver, job, place, number: answer(driver, job, number, (ADA, BOB)[place]))
    found = served(workers, 6, reply, lambda _: BOB)
    assert {name for _, name, _ in found} == {ADA}
    assert sorted(number for number, *_ in found) == list(range(6))
    assert len(lost) == 2
    assert workers.names == (ADA,)


def test_results_of_a_job_that_was_given_up_are_not_those_of_the_next(workers):
    with closing(results(workers, 2)) as first:
        thread, found = in_background(lambda: next(first))
        while not workers.drivers:
            pass
        (driver,) = workers.drivers
        given = []
        while len(given) < 2:
            given += [content for kind, content in said(driver) if kind == "item"]
        answer(driver, 1, 0, ADA, "of the first")
        thread.join()
    assert found == [(0, ADA, "of the first")]
    answer(driver, 1, 1, BOB, "late")
    assert served(workers, 1, lambda driver, job, *_: answer(driver, job, 0, ADA, f"of job {job}")) == [
        (0, ADA, "of job 2")
    ]
    assert workers.drivers == [driver], "the process is the same"


@pytest.mark.parametrize(
    "message",
    [
        ("item", (1, 7, True, (ADA, 0))),
        ("item", (1, 0, True, "no worker")),
        ("item", (1, 0, True, (ADA, 0, 0))),
        ("other", None),
        ("worker", ("0", ADA)),
        ("worker", (0, ADA, 1)),
    ],
    ids=str,
)
def test_messages_that_make_no_sense_end_the_workers(workers, message):
    with pytest.raises(ClusterError, match=r"not requested|without its worker"):
        job = results(workers, 1)
        thread = threading.Thread(target=lambda: [driver.send(message) for driver in workers.drivers], daemon=True)
        workers._start()
        for _ in range(2):
            workers._receive()
        thread.start()
        list(job)
    assert not workers.names
    assert workers._connection is None


def test_a_process_that_has_ended_is_started_again(workers):
    def reply(driver, job, _, number):
        answer(driver, job, number, ADA)

    assert served(workers, 1, reply)
    workers.drivers[0].close()
    assert served(workers, 1, reply)
    assert len(workers.drivers) == 2


def test_an_item_that_is_lost_again_and_again_ends_the_job(workers):
    def job():
        with pytest.raises(ClusterError, match=f"lost an item of work {ATTEMPTS} times: killed"):
            list(results(workers, 1))
        return True

    thread, found = in_background(job)
    while not workers.drivers:
        pass
    while thread.is_alive():
        for kind, content in said(workers.drivers[0]):
            if kind == "item":
                workers.drivers[0].send(("item", (content[1], content[2], False, "killed")))
    assert found == [True]


def test_one_job_at_a_time_has_the_workers_and_one_that_is_not_wanted_ends(workers):
    def stop():
        raise KeyboardInterrupt

    with workers._lock, pytest.raises(KeyboardInterrupt):
        list(results(workers, 1, idle=stop))
    assert not workers.drivers


def test_a_worker_keeps_its_state_and_refuses_another_version():
    def counted(state, shared, payload):
        state["count"] = state.get("count", 0) + payload
        return state["count"]

    worker = WarmWorker()
    assert worker.called(program_version()) == worker._name
    assert machine_of(worker._name) == socket.gethostname()
    assert [worker.run(counted, None, 2)[1] for _ in range(3)] == [2, 4, 6]
    with pytest.raises(ClusterError, match="install the same version everywhere"):
        worker.called("0.0.1")
