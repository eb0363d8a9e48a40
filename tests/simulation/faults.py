"""The operations of a simulated run: what nodes do, and what goes wrong.

An operation is a name with texts as arguments. `apply` performs it; one that makes no sense now does nothing. Every
fault counts under its name when it takes effect, not when it is asked for. Nodes that deviate: tests/simulation/lies.py
(the coordinator) and tests/simulation/strays.py (the learner and a member).
"""

import random
import shutil
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from dpcore.errors import RadofedError
from tests.simulation import lies  # noqa: F401 - its faults are registered
from tests.simulation.federation import Federation
from tests.simulation.nodes import COORDINATOR, LEARNER
from tests.simulation.strays import ACTS, FAULTS, WEIGHTS, Make, by_member, fault

Operation = tuple[str, ...]

MOST_QUERIES = 6
NETWORK = ("drop request", "drop reply", "duplicate", "delay")


def _member(order: random.Random, names: Sequence[str]) -> str:
    return order.choice([*names, LEARNER])


def _node(order: random.Random, names: Sequence[str]) -> str:
    return order.choice([*names, LEARNER, COORDINATOR])


def _network(kind: str) -> Make:
    return lambda order, names: ("network", kind, _member(order, names))


def _of_party(kind: str) -> Make:
    return lambda order, names: (kind, order.choice(list(names)))


def _kill(who: Callable[[random.Random, Sequence[str]], str]) -> Make:
    def make(order: random.Random, names: Sequence[str]) -> Operation:
        return ("kill", who(order, names), str(order.randrange(12)), str(order.randrange(2)))

    return make


def any_query(order: random.Random, _names: Sequence[str]) -> Operation:
    """A query of one to three attempts, with short deadlines or long ones, and perhaps a wait for further parties.

    One in two may lose a member.
    """
    return ("ask", order.choice("0122"), order.choice("011"), order.choice("0005"), order.choice("01"))


FAULTS |= {kind: _network(kind) for kind in NETWORK}
FAULTS |= {
    "kill party": _kill(lambda order, names: order.choice(list(names))),
    "kill coordinator": _kill(lambda _order, _names: COORDINATOR),
    "kill learner": _kill(lambda _order, _names: LEARNER),
    "restore ledger": lambda order, names: ("restore", order.choice(list(names)), "ledger"),
    "restore machine": lambda order, names: ("restore", order.choice(list(names)), "machine"),
}
# After faults of weights 1 and 2, little can happen to the rest of a run.
WEIGHTS["restore ledger"] = 4
_USUAL: tuple[tuple[int, Make], ...] = (
    (20, lambda order, names: ("poll", order.choice(list(names)))),
    (22, lambda _order, _names: ("poll all",)),
    (4, any_query),
    (4, lambda order, names: ("pending", order.choice(list(names)))),
    (8, lambda order, _names: ("decide", order.choice("0111"))),
    (10, lambda order, _names: ("look", str(order.randrange(3)))),
    (9, lambda order, _names: ("time", order.choice(["0.5", "0.5", "5", "5", "21", "21", "21", "21", "121", "700"]))),
    (8, lambda order, names: ("restart", _node(order, names))),
    (3, lambda order, _names: ("deliver late", str(order.randrange(1000)))),
    (8, lambda order, names: ("reconnect", _member(order, names))),
    (8, lambda order, names: ("free disk", _node(order, names))),
    (1, lambda _order, _names: ("cancel",)),
    (4, lambda order, names: ("copy", order.choice(list(names)), order.choice("0111"))),
)


def any_operation(order: random.Random, names: Sequence[str]) -> Operation:
    """What usually happens, and a fault three times in ten."""
    if order.random() < 0.3:
        kinds = sorted(FAULTS)
        (kind,) = order.choices(kinds, [WEIGHTS.get(kind, 6) for kind in kinds])
        return FAULTS[kind](order, names)
    weights = [weight for weight, _ in _USUAL]
    ((_, make),) = order.choices(_USUAL, weights)
    return make(order, names)


def apply(federation: Federation, operation: Operation) -> None:
    """Perform an operation."""
    name, *arguments = operation
    ACTS[name](federation, *arguments)


def _ask(federation: Federation, attempts: str, short: str, quorum_wait_s: str = "0", may_vanish: str = "0") -> None:
    if len(federation.asked) < MOST_QUERIES:
        terms = {"quorum_wait_s": int(quorum_wait_s), "may_vanish": int(may_vanish)}
        federation.ask(max_attempts=1 + int(attempts), short=short == "1", **terms)


def _pending(federation: Federation, name: str) -> None:
    federation.parties[name].wait_for_a_person()


def _look(federation: Federation, retry: str) -> None:
    for query_id in list(federation.asked):
        federation.look(query_id, retry=retry != "0")


def _network_fault(federation: Federation, kind: str, member: str) -> None:
    federation.network.faults.setdefault(member, deque()).append(kind)


@fault("cut off", by_member, 1)
def _cut_off(federation: Federation, member: str) -> None:
    federation.network.cut_off.add(member)
    federation.happened["cut off"] += 1


@fault("stall uploads", _of_party("stall uploads"), 12)
def _stall_uploads(federation: Federation, name: str) -> None:
    """A party that takes part cannot upload: the attempt is lost unless it reconnects."""
    federation.network.uploads_stalled.add(name)


def _reconnect(federation: Federation, member: str) -> None:
    federation.network.cut_off.discard(member)
    federation.network.uploads_stalled.discard(member)


def _kill_later(federation: Federation, name: str, steps: str, before: str) -> None:
    machine = federation.nodes()[name].machine
    machine.kill_after, machine.kill_before = int(steps), before == "1"


def _restart(federation: Federation, name: str) -> None:
    federation.restart(name)
    federation.happened["restart"] += 1


@fault("lose party", _of_party("lose party"), 1)
def _lose(federation: Federation, name: str) -> None:
    if federation.can_spare(name) and len(federation.lost_for_good) + 3 < len(federation.names):
        federation.parties[name].stop()
        federation.lost_for_good.add(name)
        federation.happened["lose party"] += 1


@fault("lose log", _of_party("lose log"), 2)
def _lose_log(federation: Federation, name: str) -> None:
    """A party's process ends, and what its database keeps beside the ledger's file is gone."""
    party = federation.parties[name]
    if name in federation.lost_for_good:
        return
    if party.up:
        party.machine.freeze(party.stop)
    else:
        party.machine.recover()
    for suffix in ("-wal", "-shm", "-journal"):
        (party.machine.directory / f"ledger.sqlite{suffix}").unlink(missing_ok=True)
    party.start()
    federation.happened["lose log"] += 1


def _damaged(federation: Federation, name: str, kind: str, damage: Callable[[Path], bool], *, restored: bool) -> None:
    """Between two starts of a party something happens to its files. damage: whether it did.

    restored: whether the files are whole; then a copy that lacks nothing is not set back.
    """
    party = federation.parties[name]
    if not federation.can_spare(name):
        return
    if party.up:
        party.machine.freeze(party.stop)
    else:
        party.machine.recover()
    before = party.entries_on_disk()
    if damage(party.machine.directory):
        federation.happened[kind] += 1
        federation.damaged.add(name)
        if not restored or party.entries_on_disk() != before:
            federation.set_back.add(name)
    party.start()


@fault("lose ledger", _of_party("lose ledger"), 1)
def _lose_ledger(federation: Federation, name: str) -> None:
    def damage(directory: Path) -> bool:
        file = directory / "ledger.sqlite"
        if not file.exists():
            return False
        file.unlink()
        return True

    _damaged(federation, name, "lose ledger", damage, restored=False)


@fault("cut ledger", lambda order, names: ("cut ledger", order.choice(list(names)), str(order.randrange(1000))), 1)
def _cut_ledger(federation: Federation, name: str, permille: str) -> None:
    def damage(directory: Path) -> bool:
        file = directory / "ledger.sqlite"
        if not file.exists():
            return False
        content = file.read_bytes()
        file.write_bytes(content[: len(content) * int(permille) // 1000])
        return True

    _damaged(federation, name, "cut ledger", damage, restored=False)


def _backup(federation: Federation, name: str, keep: str = "0") -> None:
    """A party's whole directory is copied, while no process writes to it. keep: 1 if an older copy stays."""
    machine = federation.parties[name].machine
    copy = machine.directory.with_name(f"{name}.copy")
    if machine.at_kill is None and not (keep == "1" and copy.exists()):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(machine.directory, copy)


def _restore(federation: Federation, name: str, what: str) -> None:
    def damage(directory: Path) -> bool:
        copy = directory.with_name(f"{name}.copy")
        if not (copy / "ledger.sqlite").exists():
            _backup(federation, name)  # for a later restore
            return False
        if what == "ledger":
            shutil.copy(copy / "ledger.sqlite", directory / "ledger.sqlite")
        else:
            shutil.rmtree(directory)
            shutil.copytree(copy, directory)
        return True

    _damaged(federation, name, f"restore {what}", damage, restored=True)


@fault("full disk", lambda order, names: ("full disk", _node(order, names)), 2)
def _fill_disk(federation: Federation, name: str) -> None:
    federation.nodes()[name].machine.disk_full = True
    federation.happened["full disk"] += 1


def _free_disk(federation: Federation, name: str) -> None:
    federation.nodes()[name].machine.disk_full = False


@fault("expel", _of_party("expel"), 1)
def _expel(federation: Federation, name: str) -> None:
    """The federation key signs a roster without a member, or with it again."""
    if federation.expel(name):
        federation.happened["expel"] += 1


def _cancel(federation: Federation) -> None:
    if federation.asked:
        federation.learner.guarded(lambda: federation.learner.session.cancel(federation.asked[-1]))


def _deliver_late(federation: Federation, seed: str) -> None:
    with suppress(RadofedError):
        federation.network.deliver_late(random.Random(int(seed)))


ACTS |= {
    "ask": _ask,
    "pending": _pending,
    "decide": lambda federation, approves: federation.decide(approves=approves == "1"),
    "look": _look,
    "poll": lambda federation, name: federation.parties[name].poll(),
    "poll all": lambda federation: [party.poll() for party in federation.parties.values()],
    "time": lambda federation, seconds: federation.pass_time(float(seconds)),
    "restart": _restart,
    "deliver late": _deliver_late,
    "reconnect": _reconnect,
    "free disk": _free_disk,
    "cancel": _cancel,
    "network": _network_fault,
    "kill": _kill_later,
    "copy": _backup,
    "restore": _restore,
}
