"""One job on an organisation's Ray cluster: items go out, results come back, what a dead machine took is sent again.

Ray lives in a process of its own, started for the job (radofed.common.cluster.driver): a driver ends with its cluster,
and a node must not. So this process never imports Ray, waits for no answer without a limit, and can always end the
other one.

    this process --items--> driver --tasks--> cluster
                 <-results-        <--------

At most ITEMS_PER_WORKER items for each worker are under way, whatever a job's size: that bounds memory everywhere.
An item is loaded from its source again where it was lost, so nothing but the source has to outlive a machine.

Ray gives the driver objects that workers pickled, so whoever controls a worker can run code in the driver, which has
this node's user. What the driver sends is read as data alone: no other process chooses what code runs in this one, and
whatever it is, the node goes on without the cluster.
"""

import importlib.metadata
import io
import pickle
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
from radofed.common.cluster.ray_cluster import require_ray
from radofed.common.configuration import ConfigPath, Configuration
from radofed.common.logs import Log

ITEM_BYTES = 4 << 20
"""About how large an item should be: large beside what a task costs, small beside memory."""
ITEMS_PER_WORKER = 2
"""One that is computed and one that waits."""

_ATTEMPTS = 6
_LONGEST_PAUSE_S = 3.0
_END_S = 5.0
_IDLE_S = 1.0
_ADDRESS = re.compile(r"auto|(\[[0-9A-Fa-f:.]+\]|[^\s\[\]:/]+):\d{1,5}")


# What NumPy's arrays are pickled as, in pickle's protocols up to 4 and in 5.
_ARRAYS = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy._core.numeric", "_frombuffer"),
}


class ClusterError(RadofedError):
    """The cluster could not do a job: it is not there, is gone, is too slow, or runs another program."""

    exit_code = 2


def _address(text: str) -> str:
    if not _ADDRESS.fullmatch(text):
        raise ValueError('use "auto" where this machine is a node of the cluster, else the head\'s "host:port"')
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


class ClusterJob:
    """A job: a context, in which the cluster is connected.

    function(shared, payload) computes a result on a worker; both it and the classes of shared and payload can be
    imported there by name. A result is bytes, a number, a text, an array of numbers, or a tuple of these. Raises
    ClusterError on entering where the cluster cannot be used, ConfigurationError where Ray is not installed.
    """

    def __init__(
        self,
        settings: ClusterSettings,
        function: Callable[[Any, Any], Any],
        shared: Any,
        connecting: Callable[[], None] = lambda: None,
    ) -> None:
        """connecting: called each second until the cluster is reached; what it raises passes through."""
        self._settings, self._function, self._shared = settings, function, shared
        self._connecting = connecting
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None

    def __enter__(self) -> Self:
        require_ray()
        try:
            self._start()
        except OSError as error:
            # No memory or descriptors for another process: the node can do without.
            raise ClusterError(f"the process that speaks with the cluster did not start: {error}") from error
        try:
            self._send((self._settings, program_version(), self._function, self._shared))
            self._receive(self._connecting)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def results(
        self, count: int, load: Callable[[int], Any], idle: Callable[[], None] = lambda: None
    ) -> Iterator[tuple[int, Any]]:
        """(number, result) of each item 0 to count - 1, once each, as they come; they are sent out in order.

        load(number): the item's payload, of about ITEM_BYTES; called again where a machine was lost with it. idle is
        called each second while nothing comes. What either raises passes through, and ends the job. Raises ClusterError
        where the cluster fails, an item is lost again and again, or nothing came back for timeout_s.
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
                    raise ClusterError("the cluster gave back what was not asked for")
            if is_done:
                yield number, value
                continue
            lost[number] += 1
            if lost[number] == _ATTEMPTS:
                raise ClusterError(f"the cluster lost a piece of work {_ATTEMPTS} times: {value}")
            # Ray may take a moment to notice that a machine is gone, and would send the work there again.
            time.sleep(min(_LONGEST_PAUSE_S, 0.1 * 4 ** lost[number]))
            waiting.appendleft(number)

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        # A process that hangs must not hold this one: a read or write that gets nowhere for that long fails.
        limit = struct.pack("ll", *divmod(int(self._settings.timeout_s * 1e6), 1_000_000))
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            ours.setsockopt(socket.SOL_SOCKET, option, limit)
        with theirs:
            # -P: no module is taken from the directory that this happens to run in.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "radofed.common.cluster.driver", str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                # A signal to this process's group is this process's to act on.
                start_new_session=True,
                # Ray has workers take modules from the directory that a driver runs in before all others.
                cwd="/",
            )
        self._connection = Connection(ours.detach())

    def _send(self, message: Any) -> None:
        assert self._connection is not None, "used outside its context"
        try:
            self._connection.send(message)
        except BlockingIOError as error:
            raise ClusterError(f"the cluster took nothing more for {self._settings.timeout_s:g} s") from error
        except OSError as error:
            # Why it ended may stand in its last message.
            self._receive()
            raise ClusterError("the process that speaks with the cluster ended") from error

    def _receive(self, idle: Callable[[], None] = lambda: None) -> Any:
        assert self._connection is not None, "used outside its context"
        give_up_at = time.monotonic() + self._settings.timeout_s
        try:
            while not self._connection.poll(_IDLE_S):
                if time.monotonic() > give_up_at:
                    raise BlockingIOError
                idle()
            kind, content = _read(self._connection.recv_bytes())
        except BlockingIOError as error:
            raise ClusterError(
                f"the cluster gave no answer within {self._settings.timeout_s:g} s: has it free processors?"
            ) from error
        except (EOFError, OSError) as error:
            raise ClusterError("the cluster is gone") from error
        if kind == "failed":
            raise ClusterError(content)
        return content

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


class _Plain(pickle.Unpickler):
    """Builds nothing but data: no class or function of the sender's choice."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ARRAYS:
            raise pickle.UnpicklingError(f"{module}.{name}")
        return super().find_class(module, name)


def _read(octets: bytes) -> tuple[Any, Any]:
    """One message of the driver: its kind, and what it says. Raises ClusterError where it is anything but data."""
    try:
        kind, content = _Plain(io.BytesIO(octets)).load()
    except Exception as error:  # a pickle that is none can raise anything
        raise ClusterError("the cluster gave back what is no data") from error
    return kind, content


def check_cluster(settings: ClusterSettings) -> None:
    """Connect, and have one item computed. Raises ClusterError, or ConfigurationError where Ray is not installed."""
    with ClusterJob(settings, _echo, None) as job:
        for _ in job.results(1, lambda number: number):
            pass


def check_in_background(settings: ClusterSettings, log: Log) -> None:
    """Say in the log whether the cluster can be used: a node starts without waiting for it, and works without it.

    Raises ConfigurationError where Ray is not installed.
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


def program_version() -> str:
    """The version that a worker must have, too: another one might compute something else."""
    return importlib.metadata.version("radofed")


def run_item(version: str, function: Callable[[Any, Any], Any], shared: Any, payload: Any) -> Any:
    """What a task runs, on a worker, where BLAS has one thread: others share the machine.

    Raises ClusterError where the worker's program is another version.
    """
    if program_version() != version:
        raise ClusterError(
            f"a worker of the cluster has radofed {program_version()} and this is {version}: install one everywhere"
        )
    with one_blas_thread():
        return function(shared, payload)


def _echo(_: None, payload: int) -> int:
    return payload
