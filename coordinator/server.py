"""The coordinator as a process: one state directory, one port, health, reflection, signals."""

import asyncio
import contextlib
import ctypes
import fcntl
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self, TypeAlias

import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from coordinator import reflection
from coordinator.config import CoordinatorConfig
from coordinator.connections import Connections, make_room, most_needed
from coordinator.core import Core
from coordinator.intake import Intake
from coordinator.limits import unknown_learners
from coordinator.local_control import CoordinatorWatch, LocalControl
from coordinator.membership import Admissions, LastSeen, Membership, WitnessExchange
from coordinator.service import SERVICES, LearnerService, MemberService, PartyService, Views, register
from coordinator.store import Store
from coordinator.uploads import ClusterSum, UploadSpool
from dpcore.errors import ConfigurationError, NotYetError
from dpcore.numbers.processors import one_blas_thread
from rado.v1 import learner_service_pb2_grpc, member_service_pb2_grpc, party_service_pb2_grpc
from radobase.failure import in_words
from radobase.logs import Log, start_logging
from radobase.reading import state_of
from radobase.watch_server import WatchServer
from radobase.writing import BY_UMASK, write_durably
from wire.envelopes import load_public_key
from wire.gate import Gate
from wire.identity import OwnCertificate
from wire.roster import Role
from wire.transport import SERVER_OPTIONS

DRAIN_S = 10.0
MEMORY_RETURNED_EVERY_S = 5.0
EXPIRY_CHECKED_EVERY_S = 60.0
FILES_LOOKED_AT_EVERY_S = 5.0
"""A roster or certificate that was replaced is read within this time, also without SIGHUP."""


def serve(config: CoordinatorConfig) -> None:
    """Run until SIGTERM or SIGINT, then drain. SIGHUP reloads the roster. Blocks, and sets up the process's log.

    Raises ConfigurationError or WireError if the configuration, the certificate or the roster cannot be used.
    """
    start_logging(config.log_level, config.log_file)
    asyncio.run(_serve(config))


async def _return_memory() -> None:
    """Give the memory of freed blocks back to the operating system every few seconds, where the allocator is glibc's.

    It keeps pages below any block that is in use, so that the memory of a flood would stay with the process.
    """
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return
    while True:
        await asyncio.sleep(MEMORY_RETURNED_EVERY_S)
        await asyncio.to_thread(trim, 0)


async def _serve(config: CoordinatorConfig) -> None:
    node = Node(config)
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, node.reload_roster)
    async with node:
        await stop.wait()


Services: TypeAlias = tuple[
    member_service_pb2_grpc.MemberServiceServicer,
    party_service_pb2_grpc.PartyServiceServicer,
    learner_service_pb2_grpc.LearnerServiceServicer,
]


class Node:
    """A running coordinator; an asynchronous context manager. Listens inside the context, drains at its end."""

    def __init__(self, config: CoordinatorConfig, around: Callable[[Services], Services] = lambda own: own) -> None:
        """around: what serves calls in place of this node's own services. The gate before them stays."""
        self.address = ""
        self._config, self._around = config, around
        self._log = Log(config.name)
        self._exit = contextlib.AsyncExitStack()
        self._health = _Health()
        self._membership: Membership | None = None
        self._gate: Gate | None = None
        self._core: Core | None = None

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            await self._start(stack)
            self._exit = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._exit.aclose()

    def reload_roster(self) -> None:
        """Serve the roster file's version if it is newer. Does nothing before the start."""
        if self._membership is not None and self._membership.reload() and self._gate is not None:
            self._gate.expel()
            if self._core is not None:
                self._core.begin_expelling(self._membership.roster)

    async def _start(self, stack: contextlib.AsyncExitStack) -> None:
        config = self._config
        # A node has its own compute threads, next to other nodes of this machine.
        stack.enter_context(one_blas_thread())
        own = OwnCertificate(config.tls.files, config.federation, Role.COORDINATOR, config.name, self._log)
        stack.enter_context(_locked(config.lock_file))
        config.address_file.unlink(missing_ok=True)
        store = Store(config.store_file, config.federation)
        stack.callback(store.close)
        self._store = store
        self._membership = membership = Membership(
            config.roster,
            federation=config.federation,
            name=config.name,
            federation_key=load_public_key(config.federation_key),
            store=store,
            log=self._log,
        )
        spool = UploadSpool(config.spool_directory, config.limits.spool_bytes)
        cluster = None if config.cluster is None else ClusterSum(config.cluster, spool, self._log)
        core = Core(store, spool, config.limits, self._log, cluster=cluster)
        await core.start()
        self._core = core
        await core.expel(membership.roster)
        stack.push_async_callback(core.close)
        seen = LastSeen(store)
        stack.callback(seen.save)
        self._watch = CoordinatorWatch(config, own, core, membership, seen)
        self._serve_metrics(self._watch, stack)
        self._serve_status(LocalControl(config, core, self._watch), stack)
        members = len(membership.roster.members)
        self._room = make_room(members)
        if self._room < (needed := most_needed(members)):
            self._log.warning("few descriptors", connections=self._room, needed=needed)
        server = self._build(core, membership, seen)
        self.address = self._bind(server, own)
        self._connections = Connections(
            int(self.address.rpartition(":")[2]),
            self._log,
            busy=self._peers_at_work,
            members=lambda: len(membership.roster.members),
            room=self._room,
        )
        await server.start()
        stack.push_async_callback(self._stop, server, core)
        expiry = _watch_expiry(membership, own, core.wall_clock)
        for task in (core.run(), seen.run(), expiry, self._watch_files(own), self._connections.run(), _return_memory()):
            stack.push_async_callback(_cancel, asyncio.create_task(task))
        await self._set_health(health_pb2.HealthCheckResponse.SERVING)
        self._watch.is_serving = True
        _write_address(config.address_file, self.address)
        stack.callback(config.address_file.unlink, missing_ok=True)
        if names := unknown_learners(config, membership.roster):
            self._log.warning("limits of unknown learners", learners=names)
        self._log.info(
            "listening",
            address=self.address,
            roster=membership.roster.version,
            roster_expires=membership.roster.expiry_date,
        )

    def _peers_at_work(self) -> set[str]:
        return set() if self._gate is None else self._gate.peers()

    async def _watch_files(self, own: OwnCertificate) -> None:
        """Read the roster and the certificate again whenever their files are replaced."""
        read = state_of(self._config.roster)
        while True:
            await asyncio.sleep(FILES_LOOKED_AT_EVERY_S)
            own.look()
            if (found := state_of(self._config.roster)) != read:
                read = found
                self.reload_roster()

    def _serve_metrics(self, watch: CoordinatorWatch, stack: contextlib.AsyncExitStack) -> None:
        if (settings := self._config.watch) is None:
            return
        server = WatchServer(settings, reasons=watch.reasons, samples=watch.samples, log=self._log)
        server.__enter__()
        # In a thread: it waits for a loop that may be waiting for this one.
        stack.push_async_callback(asyncio.to_thread, server.__exit__)

    def _serve_status(self, control: LocalControl, stack: contextlib.AsyncExitStack) -> None:
        try:
            server = control.server()
        except OSError as error:
            self._log.warning("status not served", reason=str(error))
            return
        server.__enter__()
        stack.push_async_callback(asyncio.to_thread, server.__exit__)

    def _build(self, core: Core, membership: Membership, seen: LastSeen) -> grpc.aio.Server:
        self._gate = Gate(
            lambda: membership.roster,
            self._log,
            seen.note,
            core.counts,
            lambda peer, san: self._connections.note(peer, san),  # noqa: PLW0108 - made once the port is known
        )
        options = [*SERVER_OPTIONS, ("grpc.max_allowed_incoming_connections", self._room)]
        server = grpc.aio.server(interceptors=(self._gate,), options=options)
        intake = Intake(core, lambda: membership.roster, self._log)
        witnesses = WitnessExchange(self._store, lambda: membership.roster, core.clock)
        views = Views(core, witnesses)
        admissions = Admissions(self._config.admissions_directory, self._log)
        own = (
            MemberService(membership, witnesses, admissions, core.wall_clock),
            PartyService(intake, views, witnesses),
            LearnerService(intake, views),
        )
        register(server, *self._around(own))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        reflection.serve(server, (*SERVICES, health.SERVICE_NAME))
        return server

    def _bind(self, server: grpc.aio.Server, own: OwnCertificate) -> str:
        host, port = self._config.host_and_port
        try:
            bound = server.add_secure_port(f"{host}:{port}", own.server_credentials())
        except RuntimeError as error:
            # The address may come late at boot, and a former process may still have the port.
            raise NotYetError(
                f"cannot listen on {self._config.listen}: check that the port is free and the host is this machine's"
            ) from error
        return f"{host}:{bound}"

    async def _set_health(self, status: Any) -> None:
        for name in ("", *SERVICES):
            await self._health.set(name, status)

    async def _stop(self, server: grpc.aio.Server, core: Core) -> None:
        self._log.info("draining")
        await self._set_health(health_pb2.HealthCheckResponse.NOT_SERVING)
        await core.begin_draining()
        await server.stop(DRAIN_S)
        self._log.info("stopped")


class _Health(health.aio.HealthServicer):  # type: ignore[misc] # the library has no types
    """The library's health service, with the call that its asynchronous form lacks."""

    async def List(self, request: Any, context: Any) -> Any:  # noqa: N802, ARG002 - gRPC's name and arguments
        """The health of every service."""
        names = ("", *SERVICES)
        each = [await self.Check(health_pb2.HealthCheckRequest(service=name), context) for name in names]
        return health_pb2.HealthListResponse(statuses=dict(zip(names, each, strict=True)))


async def _watch_expiry(membership: Membership, own: OwnCertificate, wall_clock: Callable[[], float]) -> None:
    """Warn at start, and then daily as long as the roster or this coordinator's certificate expires soon."""
    while True:
        now = wall_clock()
        membership.warn(now)
        own.warn(now)
        await asyncio.sleep(EXPIRY_CHECKED_EVERY_S)


async def _cancel(task: "asyncio.Task[None]") -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock file, in a directory that is made if there is none. The lock ends with the process.

    Raises ConfigurationError if another process holds it, or the directory cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be written ({in_words(error)})") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigurationError(
                f"{path}: another coordinator uses this state directory; stop it, or give each its own directory"
            ) from error
        yield
    finally:
        os.close(descriptor)


def _write_address(path: Path, address: str) -> None:
    temporary = path.with_name(f"{path.name}.part")
    # Not synchronised: the address is useless once this process has ended.
    write_durably(path, f"{address}\n".encode(), mode=BY_UMASK, temporary=temporary, synced=False)
