"""Network addresses in configuration files."""

import re

_TARGET = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s\[\]:/]+):(?P<port>\d{1,5})")


def split_target(target: str) -> tuple[str, int]:
    """Host, without the brackets of an IPv6 address, and port. Raises ValueError if it is not "host:port"."""
    match = _TARGET.fullmatch(target)
    if match is None or not 0 < int(match["port"]) < 1 << 16:
        raise ValueError('use "host:port", an IPv6 address in brackets, a port from 1 to 65535')
    return check_end(match["host"]).strip("[]"), int(match["port"])


def check_end(host: str) -> str:
    """The host itself. Raises ValueError if it ends with a dot, as those in certificates never do."""
    if host.endswith("."):
        raise ValueError(f"leave the dot at the end of {host} out: the certificate names the host without it")
    return host
