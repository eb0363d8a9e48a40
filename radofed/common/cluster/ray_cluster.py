"""Ray, started or reached safely: on loopback or by an address that was configured, behind a token, without dashboard.

Ray stays inside one organisation: whoever is in a cluster reads all that is in it. The only module that imports Ray,
and only when it is called.
"""

import importlib.util
import os
import secrets
import sys
from pathlib import Path
from typing import Any

from dpcore.errors import ConfigurationError
from radofed.common.files.reading import FileKind, read_text, with_remedy

_MEBIBYTE = 1 << 20
_STORE_BYTES = 256 * _MEBIBYTE
# Without it, Ray on Linux listens on every interface; its name is that of the systems where loopback is the default.
_LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
_LOCAL = ("127.", "[::1]", "localhost:")
_KNOCK_S = 20.0
_NOTE = FileKind(
    with_remedy(
        "it says where this machine's Ray cluster is, and there is no Ray cluster to be found: start one, or give the "
        "address of its head"
    ),
    limit_bytes=4096,
    own=True,
)
_TOKEN = FileKind(
    with_remedy(
        "there is no token of the Ray cluster in it: give as token_file the file that each of the cluster's nodes was "
        "started with"
    ),
    limit_bytes=1 << 16,
    secret=True,
)


def require_ray() -> None:
    """Raises ConfigurationError where Ray is not installed. Does not import it."""
    if importlib.util.find_spec("ray") is None:
        raise ConfigurationError("ray is not installed: install radofed[ray], or do without a cluster")


def start_on_loopback(*, cpus: int, object_bytes: int) -> tuple[Any, bool]:
    """Ray, and whether it was started here: one that is connected already is used as it is.

    cpus: processes that may work at once. object_bytes: what its object store is to hold beside what is in flight.
    Raises ConfigurationError where Ray is not installed or cannot be kept to loopback; then none is left running.
    """
    ray = _import_for_loopback()
    if ray.is_initialized():
        return ray, False
    ray.init(
        # Without it, Ray would join whatever cluster was last started on this machine.
        address="local",
        num_cpus=cpus,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        object_store_memory=_STORE_BYTES + object_bytes,
    )
    address = str(ray.get_runtime_context().gcs_address)
    if not address.startswith(_LOCAL):
        ray.shutdown()
        raise ConfigurationError(f"Ray listens on {address} and could not be kept to loopback: do without workers")
    return ray, True


def connect(address: str, token_file: Path | None) -> Any:
    """Ray, connected to a cluster that runs. To be called once, in a process that has not imported Ray.

    address: "auto" for the one that this machine is a node of, or "host:port". token_file: where the cluster's token
    is; where there is none, it is in one of Ray's own places (RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH, ~/.ray/auth_token).

    Raises ConfigurationError where Ray or the token is missing, or the cluster is not there, refuses the token, asks
    for none, or has no processor.
    """
    require_ray()
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_USAGE_STATS_ENABLED": "0"}
    if token_file is not None:
        os.environ.pop("RAY_AUTH_TOKEN", None)
        os.environ["RAY_AUTH_TOKEN_PATH"] = str(token_file)
    token = _require_token()
    found = _this_machines_cluster() if address == "auto" else address
    # First, since Ray itself waits long for an address where nobody is.
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
    """Where Ray says that the cluster is which this machine last became a node of.

    Ray lets every user of the machine write to where it notes that. Whoever is believed gets the token and the data: so
    it is read only where this process's user or root wrote it.
    """
    noted = Path(os.environ.get("RAY_TMPDIR") or "/tmp", "ray", "ray_current_cluster")  # noqa: S108  (Ray's own place)
    address = os.environ.get("RAY_ADDRESS", "")
    address = address or read_text(noted, _NOTE).strip()
    if not address:
        raise _NOTE.error(noted, "is empty")
    return address


def _require_token() -> str:
    """The token that Ray will find; without one it would ask nobody for one either."""
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    token = os.environ.get("RAY_AUTH_TOKEN", "") or read_text(path, _TOKEN).strip()
    if not token:
        raise _TOKEN.error(path, "is empty")
    return token


def _require_lock(address: str, token: str) -> None:
    """Refuse a cluster that lets in whoever comes without a token: anybody could read what is in it, and run code."""
    if _knock(address, None):
        raise ConfigurationError(
            f"the Ray cluster at {address} asks for no token, so anybody who reaches it could read what is in it: "
            "start its nodes with RAY_AUTH_MODE=token"
        )
    if not _knock(address, token):
        raise ConfigurationError(
            f"the Ray cluster at {address} refuses this token: give the one that its nodes were started with"
        )


def _knock(address: str, token: str | None) -> bool:
    """Whether a cluster's head lets somebody in. Raises ConfigurationError where nobody answers."""
    import grpc  # noqa: PLC0415  (only where a cluster is used)

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
    """Ray, told before its import to keep to loopback and to ask for a token."""
    if (known := sys.modules.get("ray")) is not None:
        if known.is_initialized():
            return known
        if os.environ.get(_LOOPBACK) != "0":
            raise ConfigurationError(
                "Ray was imported before it could be kept to loopback: simulate before importing it, connect it to a "
                "cluster of yours first, or simulate with 0 workers"
            )
    os.environ |= {_LOOPBACK: "0", "RAY_AUTH_MODE": "token", "RAY_USAGE_STATS_ENABLED": "0"}
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    return _import()


def _import() -> Any:
    try:
        import ray  # noqa: PLC0415  (half a second, and only where it is used)
        import ray.exceptions  # noqa: PLC0415  (as above)
    except ModuleNotFoundError as missing:
        raise ConfigurationError(
            f"{missing.name} is not installed: install radofed[ray], or do without workers"
        ) from missing
    return ray


def last_line(error: BaseException) -> str:
    """What Ray's errors say, below the traces that they carry; the class where they say nothing."""
    lines = str(error).strip().splitlines()
    return lines[-1].strip() if lines else type(error).__name__
