"""A party node's configuration file, `party.toml`."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from radofed.common.addresses import split_target
from radofed.common.cluster.jobs import ClusterSettings
from radofed.common.configuration import ConfigPath, Configuration
from radofed.common.watching.settings import WatchSettings
from wire.identity import TlsConfiguration
from wire.roster import NAME


def _member_name(name: str) -> str:
    if not NAME.fullmatch(name):
        raise ValueError("use 1 to 63 of a-z, 0-9 and '-', beginning with a letter")
    return name


def _target(target: str) -> str:
    split_target(target)
    return target


class PartyCluster(ClusterSettings):
    """The party's cluster, which sums large tables."""

    from_rows: int = Field(default=10_000_000, ge=1)
    """Tables of at least this many rows are summed on the cluster."""


class PartyConfig(Configuration):
    """Contents of `party.toml`. Paths are relative to the file. The file names key files and contains no keys."""

    federation: Annotated[str, AfterValidator(_member_name)]
    """Name of the federation, as in the roster."""
    name: Annotated[str, AfterValidator(_member_name)]
    """Name of this party, as in the roster."""
    coordinator: Annotated[str, AfterValidator(_target)]
    """Address of the coordinator, `"host:port"`. The party opens the connection."""
    federation_key: ConfigPath
    """Public key of the federation, PEM. The party accepts only rosters that this key signed."""
    signing_key: ConfigPath
    """Private signing key of this party, PEM."""
    state_directory: ConfigPath
    """Directory for contributions, the newest roster and the history. Only one node may use it at a time."""
    ledger: ConfigPath | None = None
    """The privacy ledger. Default: `ledger.sqlite` in `state_directory`."""
    policy: ConfigPath
    """The policy file. The node reads it at start and on SIGHUP."""
    schema_file: ConfigPath = Field(alias="schema")
    """The schema that all parties share, TOML."""
    data: ConfigPath
    """The table: `.csv` or `.tsv` (also with `.gz`), `.parquet` or `.pq`. The node reads it once, at start. Replace it
    whole (write a new file in the same directory, then rename): a file that changes while it is read is refused."""
    data_source: str | None = Field(default=None, min_length=1)
    """Name of the data in the ledger. Default: the data file's name. Keep the old name when the same rows move to
    another file."""
    id_column: str | None = Field(default=None, min_length=1)
    """Column that identifies the rows, such as a patient's number; no column of the schema. It decides, with a key that
    only this party has, which rows are held back from training: a row stays on its side when others are added, removed
    or sorted, and all rows of one id are on one side. It is never sent. Default: the row's place in the table decides.
    """
    spool_bytes: int = Field(default=10_000_000_000, ge=1 << 20)
    """Disk space for contributions, in bytes. A contribution needs twice its upload and 8 bytes per value."""
    spare_obfuscators: int = Field(default=1000, ge=0, le=1 << 16)
    """Obfuscators that an idle node prepares in advance, in memory only. Each takes about 1 KB and a millisecond."""
    tls: TlsConfiguration
    """Certificate and key of the connection to the coordinator."""
    cluster: PartyCluster | None = None
    """A Ray cluster that sums large tables. Default: this machine sums them and does not import Ray."""
    watch: WatchSettings | None = None
    """Metrics and health. Default: none are served."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level that is logged."""
    log_file: ConfigPath | None = None
    """File for the log. Default: standard error."""

    @property
    def ledger_file(self) -> Path:
        """Path of the ledger."""
        return self.state_directory / "ledger.sqlite" if self.ledger is None else self.ledger

    @property
    def source(self) -> str:
        """Name of the data source whose budget the ledger tracks."""
        return self.data.name if self.data_source is None else self.data_source
