"""The section `[watch]` of a node's configuration file."""

import ipaddress
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, model_validator

from radobase.addresses import split_target
from radobase.configuration import ConfigPath, Configuration


def _loopback(listen: str) -> str:
    host, _ = split_target(listen)
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        raise ValueError(
            'metrics and health have no password, so only this machine may read them: use "127.0.0.1:9464" or '
            '"[::1]:9464", or `socket`; another machine reads them through an agent on this one'
        )
    return listen


class WatchSettings(Configuration):
    """Metrics and health, over plain HTTP for this machine only. Needs the extra `metrics`."""

    listen: Annotated[str, AfterValidator(_loopback)] | None = None
    """Loopback address, such as `"127.0.0.1:9464"`. Every user of this machine can read it."""
    socket: ConfigPath | None = None
    """Unix socket, in place of `listen`. Only the node's own user can read it."""

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.listen is None) == (self.socket is None):
            raise ValueError("give either `listen` or `socket`")
        return self

    @property
    def place(self) -> Path | tuple[str, int]:
        """Path of the socket, or host and port."""
        if self.socket is not None:
            return self.socket
        assert self.listen is not None, "checked at construction"
        return split_target(self.listen)

    @property
    def words(self) -> str:
        """The place as the configuration file has it."""
        return str(self.socket or self.listen)
