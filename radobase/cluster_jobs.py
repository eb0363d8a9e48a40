"""One job on an organisation's Ray cluster: sends items, receives results, and sends the items of lost machines again.

Ray runs in its own process, started for the job (radobase.ray_driver): a driver ends with its cluster, and a
node must not. So this process never imports Ray, limits every wait, and can always end the other process.

    this process --items--> driver --tasks--> cluster
                 <-results-        <--------

For a job of any size, at most ITEMS_PER_WORKER items for each worker are under way: that bounds memory everywhere. A
lost item is loaded from its source again, so only the source must outlive a machine.

Ray gives the driver objects that workers pickled, so anyone who controls a worker can run code in the driver, which has
this node's user. This process reads the driver's messages as data only: no other process can choose the code that runs
here, and if a message is invalid, the node continues without the cluster.
"""

import io
import pickle
import pickletools
import re
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field

from dpcore.errors import RadofedError
from dpcore.numbers.processors import one_blas_thread
from radobase.configuration import ConfigPath, Configuration
from radobase.logs import Log
from radobase.ray_cluster import require_ray
from radobase.version import program_version

ITEM_BYTES = 4 << 20
"""The approximate size of an item: large compared with the cost of a task, small compared with memory."""
ITEMS_PER_WORKER = 2
"""One item that is computed and one that waits."""

ATTEMPTS = 6
"""So often an item may be lost."""
LONGEST_PAUSE_S = 3.0
IDLE_S = 1.0
"""How often a node that waits for its cluster looks whether the work is still wanted."""
_END_S = 5.0
_ADDRESS = re.compile(r"auto|(\[[0-9A-Fa-f:.]+\]|[^\s\[\]:/]+):[0-9]{1,5}")


# The names in a pickled NumPy array, in pickle's protocols up to 4 and in 5.
_ARRAYS = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy._core.numeric", "_frombuffer"),
}


class ClusterError(RadofedError):
    """The cluster could not do a job: it is missing, lost, too slow, or runs another version."""

    exit_code = 2


def _address(text: str) -> str:
    if not _ADDRESS.fullmatch(text):
        raise ValueError('use "auto" if this machine is a node of the cluster, else the head\'s "host:port"')
    return text


class ClusterSettings(Configuration):
    """A Ray cluster of this node's own organisation. Every program in the cluster can read what it is given."""

    address: Annotated[str, AfterValidator(_address)]
    """Address of the cluster's head as `"host:port"`, or `"auto"` for the cluster that this machine is a node of."""
    token_file: ConfigPath | None = None
    """File with the cluster's token. Default: where Ray looks (`RAY_AUTH_TOKEN`, `RAY_AUTH_TOKEN_PATH`,
    `~/.ray/auth_token`). A cluster that requires no token is refused."""
    workers: Annotated[int, Field(ge=1, le=10_000)] = 8
    """Tasks at one time, each on one processor. Each task has at most two items of about 4 MiB under way, which
    bounds memory."""
    timeout_s: Annotated[float, Field(gt=0, le=86_400)] = 300.0
    """Longest wait for one answer, in seconds. The node then does the work itself."""


class Driver:
    """The process that connects to the cluster, and the connection to it."""

    def __init__(self, settings: ClusterSettings) -> None:
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None

    def _connect(self, start: tuple[Any, ...], connecting: Callable[[], None]) -> None:
        """Start the process, tell it what it is for, and wait until it is connected to the cluster.

        Raises ClusterError if the cluster cannot be used, ConfigurationError if Ray is not installed.
        """
        require_ray()
        try:
            self._start()
        except OSError as error:
            # No memory or descriptors for another process: the node can work without the cluster.
            raise ClusterError(f"the process that connects to the cluster did not start: {error}") from error
        try:
            self._send((self._settings, program_version(), *start))
            self._receive(connecting)
        except BaseException:
            self._end()
            raise

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        # A process that hangs must not block this one: a read or write without progress for that long fails.
        limit = struct.pack("ll", *divmod(int(self._settings.timeout_s * 1e6), 1_000_000))
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            ours.setsockopt(socket.SOL_SOCKET, option, limit)
        with theirs:
            # -P: no module is imported from the working directory.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "radobase.ray_driver", str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                # Only this process reacts to signals to its group.
                start_new_session=True,
                # Ray's workers import modules from the driver's working directory first.
                cwd="/",
            )
        self._connection = Connection(ours.detach())

    def _send(self, message: Any) -> None:
        assert self._connection is not None, "used outside its context"
        try:
            self._connection.send(message)
        except BlockingIOError as error:
            raise ClusterError(f"the cluster accepted no more items for {self._settings.timeout_s:g} s") from error
        except OSError as error:
            # Its last message may say why it ended.
            self._receive()
            raise ClusterError("the process that connects to the cluster ended") from error

    def _receive(self, idle: Callable[[], None] = lambda: None) -> Any:
        """The content of the next message. Raises ClusterError, and what `idle` raises, which is called each second."""
        return self._message(idle)[1]

    def _message(self, idle: Callable[[], None] = lambda: None) -> tuple[Any, Any]:
        """The next message: its kind and its content."""
        assert self._connection is not None, "used outside its context"
        give_up_at = time.monotonic() + self._settings.timeout_s
        try:
            while not self._connection.poll(IDLE_S):
                if time.monotonic() > give_up_at:
                    raise BlockingIOError
                idle()
            kind, content = _read(self._connection.recv_bytes())
        except BlockingIOError as error:
            raise ClusterError(
                f"the cluster gave no answer within {self._settings.timeout_s:g} s: check that it has free processors"
            ) from error
        except (EOFError, OSError) as error:
            raise ClusterError("the connection to the cluster was lost") from error
        if kind == "failed":
            raise ClusterError(content)
        return kind, content

    def _end(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._process is not None:
            try:
                self._process.wait(_END_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None


class ClusterJob(Driver):
    """A job, as a context in which the cluster is connected.

    function(shared, payload) computes a result on a worker, which must be able to import it and the classes of shared
    and payload by name. A result is bytes, a number, a text, an array of numbers, or a tuple of these. Entering raises
    ClusterError if the cluster cannot be used, ConfigurationError if Ray is not installed.
    """

    def __init__(
        self,
        settings: ClusterSettings,
        function: Callable[[Any, Any], Any],
        shared: Any,
        connecting: Callable[[], None] = lambda: None,
    ) -> None:
        """connecting: called each second until the cluster is connected. Its exceptions propagate."""
        super().__init__(settings)
        self._function, self._shared = function, shared
        self._connecting = connecting

    def __enter__(self) -> Self:
        self._connect((self._function, self._shared), self._connecting)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def results(
        self, count: int, load: Callable[[int], Any], idle: Callable[[], None] = lambda: None
    ) -> Iterator[tuple[int, Any]]:
        """Yield (number, result) of each item 0 to count - 1, once each, in the order of completion.

        load(number): the item's payload, of about ITEM_BYTES; called again if its machine was lost. Items are sent in
        order. idle is called each second while no result arrives. Exceptions of both propagate and end the job. Raises
        ClusterError if the cluster fails, an item is lost repeatedly, or no result arrives for timeout_s.
        """
        waiting, under_way = deque(range(count)), set[int]()
        lost: Counter[int] = Counter()
        while waiting or under_way:
            while waiting and len(under_way) < ITEMS_PER_WORKER * self._settings.workers:
                number = waiting.popleft()
                self._send((number, load(number)))
                under_way.add(number)
            match self._receive(idle):
                case (int(number), bool(is_done), value) if number in under_way:
                    under_way.remove(number)
                case _:
                    raise ClusterError("the cluster returned a result that was not requested")
            if is_done:
                yield number, value
                continue
            lost[number] += 1
            if lost[number] == ATTEMPTS:
                raise ClusterError(f"the cluster lost an item of work {ATTEMPTS} times: {value}")
            # Ray may take a moment to notice that a machine is lost, and would send the item there again.
            time.sleep(min(LONGEST_PAUSE_S, 0.1 * 4 ** lost[number]))
            waiting.appendleft(number)


_MEMO_WRITES = frozenset({"PUT", "BINPUT", "LONG_BINPUT"})


class _Plain(pickle.Unpickler):
    """Unpickles data only: no class or function of the sender's choice."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ARRAYS:
            raise pickle.UnpicklingError(f"{module}.{name}")
        return super().find_class(module, name)


def _read(octets: bytes) -> tuple[Any, Any]:
    """One message of the driver: its kind and its content. Raises ClusterError unless it is data."""
    try:
        # The memo has room for the largest index at once: nine bytes could take gigabytes.
        for opcode, argument, _ in pickletools.genops(octets):
            if opcode.name in _MEMO_WRITES and int(argument or 0) >= len(octets):
                raise pickle.UnpicklingError("an index of the memo is larger than the message")
        kind, content = _Plain(io.BytesIO(octets)).load()
    except Exception as error:  # an invalid pickle can raise anything
        raise ClusterError("the cluster returned an invalid message") from error
    return kind, content


def check_cluster(settings: ClusterSettings) -> None:
    """Connect and compute one item. Raises ClusterError, or ConfigurationError if Ray is not installed."""
    with ClusterJob(settings, _echo, None) as job:
        for _ in job.results(1, lambda number: number):
            pass


def check_in_background(settings: ClusterSettings, log: Log) -> None:
    """Log whether the cluster can be used. A node starts without waiting for it, and works without it.

    Raises ConfigurationError if Ray is not installed.
    """
    require_ray()

    def check() -> None:
        about = {"address": settings.address, "workers": settings.workers}
        try:
            check_cluster(settings)
        except RadofedError as error:
            log.warning("cluster cannot be used", **about, reason=str(error))
        else:
            log.info("cluster can be used", **about)

    threading.Thread(target=check, name="check cluster", daemon=True).start()


def run_item(version: str, function: Callable[[Any, Any], Any], shared: Any, payload: Any) -> Any:
    """The function of a task on a worker. BLAS has one thread there, because tasks share the machine.

    Raises ClusterError if the worker's program has another version: it might compute different results.
    """
    check_version(version)
    with one_blas_thread():
        return function(shared, payload)


def check_version(version: str) -> None:
    """Raise ClusterError if this program has another version than the node's."""
    if program_version() != version:
        raise ClusterError(
            f"a worker of the cluster has radofed {program_version()}, but this node has {version}: "
            "install the same version everywhere"
        )


def _echo(_: None, payload: int) -> int:
    return payload
