"""A party node's configuration file, `party.toml`."""

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from radofed.common.cluster.jobs import ClusterSettings
from radofed.common.configuration import ConfigPath, Configuration
from wire.identity import TlsConfiguration
from wire.roster import NAME

_TARGET = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s\[\]:/]+):(?P<port>\d{1,5})")


def _member_name(name: str) -> str:
    if not NAME.fullmatch(name):
        raise ValueError("use 1 to 63 of a-z, 0-9 and '-', beginning with a letter")
    return name


def _target(target: str) -> str:
    split_target(target)
    return target


def split_target(target: str) -> tuple[str, int]:
    """Host, without the brackets of an IPv6 address, and port. Raises ValueError where it is not "host:port"."""
    match = _TARGET.fullmatch(target)
    if match is None or not 0 < int(match["port"]) < 1 << 16:
        raise ValueError('use "host:port", an IPv6 address in brackets, a port from 1 to 65535')
    return match["host"].strip("[]"), int(match["port"])


class PartyCluster(ClusterSettings):
    """The party's cluster. from_rows: a table of at least so many rows is summed there."""

    from_rows: int = Field(default=10_000_000, ge=1)


class PartyConfig(Configuration):
    """Where a party finds its coordinator, keys, policy, schema and data, and where it keeps its state.

    `schema_file` is the key `schema` of the file. `ledger` is `ledger.sqlite` in the state directory where none is
    given. `data_source` names the data that the ledger counts for: the data file's name where none is given; set it to
    the old name when the same rows move to another file. `spare_obfuscators` is how many lie ready in memory between
    queries, about 1 KB and a millisecond's work each. `cluster` is a Ray cluster that sums rows; without it this
    machine does, and Ray is not imported.
    """

    federation: Annotated[str, AfterValidator(_member_name)]
    name: Annotated[str, AfterValidator(_member_name)]
    coordinator: Annotated[str, AfterValidator(_target)]
    federation_key: ConfigPath
    signing_key: ConfigPath
    state_directory: ConfigPath
    ledger: ConfigPath | None = None
    policy: ConfigPath
    schema_file: ConfigPath = Field(alias="schema")
    data: ConfigPath
    data_source: str | None = Field(default=None, min_length=1)
    spool_bytes: int = Field(default=10_000_000_000, ge=1 << 20)
    spare_obfuscators: int = Field(default=1000, ge=0, le=1 << 16)
    tls: TlsConfiguration
    cluster: PartyCluster | None = None
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_file: ConfigPath | None = None

    @property
    def ledger_file(self) -> Path:
        """Where the ledger is."""
        return self.state_directory / "ledger.sqlite" if self.ledger is None else self.ledger

    @property
    def source(self) -> str:
        """The name of the data that the ledger counts for."""
        return self.data.name if self.data_source is None else self.data_source
