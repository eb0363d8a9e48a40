"""Starts Ray or connects to it securely: on loopback or at a configured address, with a token, without dashboard.

Ray stays inside one organisation: every program in a cluster can read everything in it. This is the only module that
imports Ray, and only when it is called.
"""

import importlib.util
import os
import secrets
import sys
from pathlib import Path
from typing import Any

from dpcore.errors import ConfigurationError, RadofedError
from radobase.reading import FileKind, read_text, with_remedy

_MEBIBYTE = 1 << 20
_STORE_BYTES = 256 * _MEBIBYTE
# Without it, Ray on Linux listens on every interface. The name refers to the systems where loopback is the default.
_LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
_LOCAL = ("127.", "[::1]", "localhost:")
_KNOCK_S = 20.0
_NOTE = FileKind(
    with_remedy(
        "it should name this machine's Ray cluster, but no Ray cluster was found: start one, or give the address of "
        "its head"
    ),
    limit_bytes=4096,
    own=True,
)
_TOKEN = FileKind(
    with_remedy(
        "it should hold the Ray cluster's token: set token_file to the file that the cluster's nodes were started with"
    ),
    limit_bytes=1 << 16,
    secret=True,
    decides=True,
)


class RayStartError(RadofedError):
    """Ray did not start on this machine."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"Ray did not start: {reason}. Try again when this machine is less busy, or use no workers (workers 0)"
        )


def require_ray() -> None:
    """Raise ConfigurationError if Ray is not installed. Does not import it."""
    if importlib.util.find_spec("ray") is None:
        raise ConfigurationError("ray is not installed: install radofed[ray], or work without a cluster")


def start_on_loopback(*, cpus: int, object_bytes: int) -> tuple[Any, bool]:
    """Ray, and whether this call started it. A Ray that is already connected is used unchanged.

    cpus: most processes that work at once. object_bytes: bytes that its object store must hold, besides those in
    flight. Raises ConfigurationError if Ray is not installed or cannot be limited to loopback, RayStartError if it does
    not start, such as in time; then it is not running.
    """
    ray = _import_for_loopback()
    if ray.is_initialized():
        return ray, False
    try:
        ray.init(
            # Without it, Ray would join the cluster that was last started on this machine.
            address="local",
            num_cpus=cpus,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
            object_store_memory=_STORE_BYTES + object_bytes,
        )
    except Exception as error:  # Ray raises Exception itself if a process of its own is late
        ray.shutdown()
        raise RayStartError(last_line(error).rstrip(".")) from error
    address = str(ray.get_runtime_context().gcs_address)
    if not address.startswith(_LOCAL):
        ray.shutdown()
        raise ConfigurationError(f"Ray listens on {address} and could not be limited to loopback: use no workers")
    return ray, True


def connect(address: str, token_file: Path | None) -> Any:
    """Ray, connected to a running cluster. Call this once, in a process that has not imported Ray.

    address: "auto" for the cluster that this machine is a node of, or "host:port". token_file: the file with the
    cluster's token; None for Ray's own places (RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH, ~/.ray/auth_token).

    Raises ConfigurationError if Ray or the token is missing, or the cluster does not answer, refuses the token,
    requires no token, or has no processor.
    """
    require_ray()
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_USAGE_STATS_ENABLED": "0"}
    if token_file is not None:
        os.environ.pop("RAY_AUTH_TOKEN", None)
        os.environ["RAY_AUTH_TOKEN_PATH"] = str(token_file)
    token = _require_token()
    found = _this_machines_cluster() if address == "auto" else address
    # First, since Ray itself waits long for an address that does not answer.
    _require_lock(found, token)
    if found.startswith(_LOCAL):
        os.environ[_LOOPBACK] = "0"
    ray = _import()
    try:
        ray.init(address=found, log_to_driver=False, logging_level="ERROR", configure_logging=False)
    except (ray.exceptions.RayError, ConnectionError, RuntimeError, ValueError) as error:
        raise ConfigurationError(f"the Ray cluster at {found} cannot be used: {last_line(error)}") from error
    if ray.cluster_resources().get("CPU", 0) < 1:
        raise ConfigurationError(f"the Ray cluster at {found} has no processor: start its nodes with --num-cpus")
    return ray


def _this_machines_cluster() -> str:
    """The address that Ray noted for the cluster that this machine last became a node of.

    Ray notes it in a place that every user of the machine may write to, and the token and the data go to that address.
    So the note is used only if it belongs to this process's user or to root.
    """
    noted = Path(os.environ.get("RAY_TMPDIR") or "/tmp", "ray", "ray_current_cluster")  # noqa: S108  (Ray's own place)
    address = os.environ.get("RAY_ADDRESS", "")
    address = address or read_text(noted, _NOTE).strip()
    if not address:
        raise _NOTE.error(noted, "is empty")
    return address


def _require_token() -> str:
    """The token that Ray will find. Without one, Ray would not require a token from others either."""
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    token = os.environ.get("RAY_AUTH_TOKEN", "") or read_text(path, _TOKEN).strip()
    if not token:
        raise _TOKEN.error(path, "is empty")
    return token


def _require_lock(address: str, token: str) -> None:
    """Refuse a cluster that requires no token: anyone could read its content and run code in it."""
    if _knock(address, None):
        raise ConfigurationError(
            f"the Ray cluster at {address} requires no token, so anyone who can connect could read its content: "
            "start its nodes with RAY_AUTH_MODE=token"
        )
    if not _knock(address, token):
        raise ConfigurationError(
            f"the Ray cluster at {address} refuses this token: give the one that its nodes were started with"
        )


def _knock(address: str, token: str | None) -> bool:
    """Whether a cluster's head accepts this token. Raises ConfigurationError if it does not answer."""
    import grpc  # noqa: PLC0415  (only if a cluster is used)

    metadata = None if token is None else (("authorization", f"Bearer {token}"),)
    with grpc.insecure_channel(address, options=(("grpc.enable_http_proxy", 0),)) as channel:
        ask: Any = channel.unary_unary("/ray.rpc.NodeInfoGcsService/CheckAlive")
        try:
            ask(b"", metadata=metadata, timeout=_KNOCK_S)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNAUTHENTICATED:
                return False
            raise ConfigurationError(
                f"no Ray cluster answers at {address} ({error.code().name}): give the address that its head was "
                "started with"
            ) from error
    return True


def _import_for_loopback() -> Any:
    """Ray, configured before its import to listen on loopback only and to require a token."""
    if (known := sys.modules.get("ray")) is not None:
        if known.is_initialized():
            return known
        if os.environ.get(_LOOPBACK) != "0":
            raise ConfigurationError(
                "Ray was imported before it could be limited to loopback: simulate before importing it, connect it to "
                "your own cluster first, or simulate with 0 workers"
            )
    os.environ |= {_LOOPBACK: "0", "RAY_AUTH_MODE": "token", "RAY_USAGE_STATS_ENABLED": "0"}
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    return _import()


def _import() -> Any:
    try:
        import ray  # noqa: PLC0415  (half a second, and only if it is used)
        import ray.exceptions  # noqa: PLC0415  (as above)
    except ModuleNotFoundError as missing:
        raise ConfigurationError(
            f"{missing.name} is not installed: install radofed[ray], or use no workers"
        ) from missing
    return ray


def last_line(error: BaseException) -> str:
    """The message of a Ray error, which follows its trace; the class name if there is no message."""
    lines = str(error).strip().splitlines()
    return lines[-1].strip() if lines else type(error).__name__
