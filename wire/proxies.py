"""The HTTP proxy of the environment through which a connection to a coordinator goes, as gRPC finds it.

gRPC's C core (src/core/handshaker/http_connect/http_proxy_mapper.cc, 1.85) takes the first of grpc_proxy, https_proxy
and http_proxy that is set, in small letters, and asks the proxy by CONNECT; no_grpc_proxy or no_proxy name hosts that
it connects to directly. TLS goes through such a tunnel unopened. What looks at a connection before gRPC uses it goes
the same way.
"""

import os
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from urllib.parse import unquote, urlsplit

from radobase.addresses import split_target

_VARIABLES = ("grpc_proxy", "https_proxy", "http_proxy")
_DIRECT = ("no_grpc_proxy", "no_proxy")
_DEFAULT_PORT = 80


@dataclass(frozen=True)
class HttpProxy:
    """A proxy. variable: of the environment, which names it. credentials: "user:password", or empty."""

    variable: str
    host: str
    port: int
    credentials: str = field(default="", repr=False)

    def advice(self, target: str) -> str:
        """For the error of a connection that goes this way."""
        host, _ = split_target(target)
        return (
            f"the connection goes through the proxy {self.host}:{self.port}, which {self.variable} in the environment "
            f"names: have it pass CONNECT {target}, or add {host} to no_proxy if no proxy is needed"
        )

    def request(self, target: str) -> bytes:
        """What asks the proxy for a tunnel to a target."""
        lines = [f"CONNECT {target} HTTP/1.0", f"Host: {target}"]
        if self.credentials:
            lines.append(f"Proxy-Authorization: Basic {b64encode(self.credentials.encode()).decode()}")
        return "\r\n".join([*lines, "", ""]).encode()


def proxy_of(target: str, environment: Mapping[str, str] | None = None) -> HttpProxy | None:
    """The proxy for a target; None if the connection is direct. environment: default: this process's."""
    environment = os.environ if environment is None else environment
    variable = next((name for name in _VARIABLES if name in environment), None)
    if variable is None:
        return None
    try:
        parts = urlsplit(environment[variable])
        host, port = parts.hostname or "", parts.port or _DEFAULT_PORT
    except ValueError:
        return None
    # gRPC goes directly if it cannot use what is given.
    if parts.scheme != "http" or not host or _is_direct(split_target(target)[0], environment):
        return None
    credentials = unquote(parts.netloc.rpartition("@")[0])
    return HttpProxy(variable, host, port, credentials)


def through_proxy(target: str) -> str:
    """What an error of a connection adds if a proxy is on the way: "; the connection goes through ..."."""
    try:
        proxy = proxy_of(target)
    except ValueError:
        return ""
    return "" if proxy is None else f"; {proxy.advice(target)}"


def _is_direct(host: str, environment: Mapping[str, str]) -> bool:
    """Whether an entry is the host's address, a network with it, or an end of its name."""
    name = next((name for name in _DIRECT if name in environment), None)
    entries = [] if name is None else [entry.strip() for entry in environment[name].split(",")]
    return any(_names(entry, host) for entry in entries if entry)


def _names(entry: str, host: str) -> bool:
    try:
        network = ip_network(entry, strict=False)
    except ValueError:
        return host.lower().endswith(entry.lower())
    try:
        return ip_address(host) in network
    except ValueError:
        return False
