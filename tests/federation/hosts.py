"""Hosts for tests: network namespaces with an address each, and a network between them that delays, loses and is cut.

Every host has a TUN device. A thread passes packets between the devices, so that TCP, TLS and gRPC are those of real
hosts, whatever queueing disciplines the kernel has. It needs Linux, root and /dev/net/tun.
"""

import contextlib
import ctypes
import fcntl
import heapq
import json
import os
import random
import selectors
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Self

from tests.federation.processes import Forked, ProcessFederation, run_rado

DEVICE, NETWORK, PORT = "rado0", "10.77.0", 7443
NAME = "coordinator.example.org"
"""The name that members dial; its address is in each host's /etc/hosts."""
_TUNSETIFF, _TUN_WITHOUT_HEADER = 0x400454CA, 0x1001
_NEW_NETWORK, _NEW_MOUNTS, _BIND, _PRIVATE = 0x40000000, 0x00020000, 4096, 1 << 18
_MOST_BYTES = 2048
_LIBC = ctypes.CDLL(None, use_errno=True)


@cache
def why_not() -> str:
    """Why this machine has no hosts for tests, in a sentence; empty if it has."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "Network namespaces need Linux and root."
    if shutil.which("ip") is None:
        return "Network namespaces need the command ip (iproute2)."
    try:
        with Hosts("try") as hosts:
            hosts.address("try")
    except (OSError, subprocess.CalledProcessError) as error:
        return f"This machine does not allow network namespaces with TUN devices ({error})."
    return ""


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def _enter(namespace: Path) -> None:
    """Move this thread to a network namespace."""
    with namespace.open("rb") as file:
        _check(_LIBC.setns(file.fileno(), _NEW_NETWORK), f"enter {namespace}")


class Hosts:
    """Hosts by name, and the network between them. A context manager.

    delay_s: of each packet, one way. loss: the share of packets that are lost. Both may be changed at any time.
    """

    def __init__(self, *names: str, delay_s: float = 0.0, loss: float = 0.0, seed: int = 1) -> None:
        self.names, self.delay_s, self.loss = names, delay_s, loss
        self.sent_bytes: Counter[str] = Counter()
        """By host."""
        self.lost = 0
        self._cut: frozenset[str] = frozenset()
        self._random = random.Random(seed)
        self._prefix = f"rado{os.getpid()}"
        self._devices: dict[str, int] = {}
        self._waiting: list[tuple[float, int, int, bytes]] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._pass_on, name="network", daemon=True)

    def __enter__(self) -> Self:
        try:
            for name in self.names:
                self._make(name)
        except BaseException:
            self._remove()
            raise
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        self._remove()

    def namespace(self, name: str) -> Path:
        return Path("/var/run/netns") / f"{self._prefix}-{name}"

    def address(self, name: str) -> str:
        return f"{NETWORK}.{self.names.index(name) + 1}"

    def cut(self, *names: str) -> None:
        """Lose all packets from and to these hosts; without names of none."""
        self._cut = frozenset(names)

    def _make(self, name: str) -> None:
        namespace = self.namespace(name).name
        _ip("netns", "add", namespace)
        opened: list[int | BaseException] = []

        def open_device() -> None:
            try:
                _enter(self.namespace(name))
                device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
                fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH", DEVICE.encode(), _TUN_WITHOUT_HEADER))
                opened.append(device)
            except BaseException as error:  # noqa: BLE001 - raised below
                opened.append(error)

        # A thread of its own: it stays in the namespace.
        thread = threading.Thread(target=open_device)
        thread.start()
        thread.join()
        (device,) = opened
        if isinstance(device, BaseException):
            raise device
        self._devices[name] = device
        _ip("-n", namespace, "addr", "add", f"{self.address(name)}/24", "dev", DEVICE)
        _ip("-n", namespace, "link", "set", DEVICE, "up")
        _ip("-n", namespace, "link", "set", "lo", "up")

    def _remove(self) -> None:
        for device in self._devices.values():
            os.close(device)
        for name in self.names:
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("netns", "del", self.namespace(name).name)

    def _pass_on(self) -> None:
        by_address = {socket.inet_aton(self.address(name)): name for name in self.names}
        number = 0
        with selectors.DefaultSelector() as selector:
            for name, device in self._devices.items():
                selector.register(device, selectors.EVENT_READ, name)
            while not self._stopped.is_set():
                wait_s = 0.1 if not self._waiting else max(0.0, min(0.1, self._waiting[0][0] - time.monotonic()))
                for key, _ in selector.select(wait_s):
                    for packet in _packets(key.fd):
                        to = by_address.get(packet[16:20])
                        if packet[0] >> 4 != 4 or to is None or not self._arrives(key.data, to, len(packet)):
                            continue
                        number += 1
                        heapq.heappush(
                            self._waiting, (time.monotonic() + self.delay_s, number, self._devices[to], packet)
                        )
                while self._waiting and self._waiting[0][0] <= time.monotonic():
                    *_, device, packet = heapq.heappop(self._waiting)
                    with contextlib.suppress(OSError):
                        os.write(device, packet)

    def _arrives(self, sender: str, to: str, size_bytes: int) -> bool:
        self.sent_bytes[sender] += size_bytes
        if {sender, to} & self._cut or self._random.random() < self.loss:
            self.lost += 1
            return False
        return True


def _packets(device: int) -> Iterator[bytes]:
    with contextlib.suppress(BlockingIOError):
        while True:
            yield os.read(device, _MOST_BYTES)


def run_on_host(namespace: str, hosts_file: str, *arguments: str) -> None:
    """`rado ARGUMENTS` on a host: the function of a process that has no other thread yet."""
    move_to(namespace, hosts_file)
    run_rado(*arguments)


def move_to(namespace: str, hosts_file: str) -> None:
    """Move this process to a host, whose names are those of a file."""
    _enter(Path(namespace))
    _check(_LIBC.unshare(_NEW_MOUNTS), "unshare")
    _check(_LIBC.mount(b"none", b"/", None, _PRIVATE | 16384, None), "mount")
    _check(_LIBC.mount(hosts_file.encode(), b"/etc/hosts", None, _BIND, None), "mount /etc/hosts")


def ask_on_host(namespace: str, hosts_file: str, config: str, schema: str, job: str, output: str) -> None:
    """Ask queries as the learner on a host, one after another, and write what each took.

    job: {"rounds": ..., "rados": ...} in JSON; without rados each query is one statistic.
    """
    move_to(namespace, hosts_file)
    from fractions import Fraction

    from dpcore.predicates.frontend import y
    from dpcore.records.schema import Schema
    from learner.config import LearnerConfig
    from learner.requests import RadosRequest, StatisticRequest
    from learner.session import Session

    asked, columns = json.loads(job), Schema.from_toml(Path(schema).read_text())
    found = []
    with Session(LearnerConfig.load(Path(config))) as session:
        for _ in range(asked["rounds"]):
            begun = time.monotonic()
            if "rados" in asked:
                plan = session.plan(RadosRequest(columns, asked["rados"], design="plain"))
            else:
                plan = session.plan(StatisticRequest(columns, (y == 1,), epsilon=Fraction(1)))
            release = session.run(plan, timeout_s=asked.get("timeout_s"))
            seconds = time.monotonic() - begun
            found.append({"seconds": seconds, "rows": release.cohort_rows, "attempt": release.cohort.attempt})
            Path(output).write_text(json.dumps(found))


class DistantFederation(ProcessFederation):
    """A federation each of whose nodes is a process on a host of its own, and so is the learner."""

    def __init__(self, root: Path, hosts: Hosts, **options) -> None:
        self.hosts = hosts
        self._places: dict[str, str] = {}
        super().__init__(root, address=f"{NAME}:{PORT}", **options)
        self.hosts_file = root / "hosts"
        self.hosts_file.touch()
        self.hosts_file.chmod(0o644)

    def place(self, member: str, host: str) -> None:
        """Say on which host a member starts next; the one of its name if it is not said."""
        self._places[member] = host

    def point_to(self, host: str) -> None:
        """Let the coordinator's name mean a host. The file stays the one that every host has."""
        with self.hosts_file.open("r+") as file:
            file.write(f"127.0.0.1 localhost\n{self.hosts.address(host)} {NAME}\n")
            file.truncate()

    def _on(self, member: str) -> tuple[str, str]:
        return str(self.hosts.namespace(self._places.get(member, member))), str(self.hosts_file)

    def start(self, name: str) -> None:
        member = self.member(name)
        arguments = (member.role.value, "start", "--config", str(member.config))
        self.processes[name] = Forked(run_on_host, (*self._on(name), *arguments), self.root / f"{name}.log")

    def ask(self, schema: Path, **job) -> "Asking":
        """Ask as the learner, in a process that goes on meanwhile."""
        return Asking(self, schema, job, self._on(self.learner.name))


class Asking:
    """A learner's process that asks."""

    def __init__(self, federation: DistantFederation, schema: Path, job: dict, host: Iterable[str]) -> None:
        self._output = federation.root / "answers.json"
        self._output.unlink(missing_ok=True)
        self._log = federation.root / "asking.log"
        arguments = (*host, str(federation.learner.config), str(schema), json.dumps(job), str(self._output))
        self.process = Forked(ask_on_host, arguments, self._log)

    def answers(self) -> list[dict]:
        """What each query took, once the process has ended."""
        assert self.process.wait() == 0, self._log.read_text()
        return json.loads(self._output.read_text())
