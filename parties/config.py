"""A party node's configuration file, `party.toml`."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from parties.approval.notifying import NotifySettings
from radobase.cluster_jobs import ClusterSettings
from radobase.configuration import ConfigPath, Configuration, split_target
from radobase.metrics import WatchSettings
from radobase.tables.database_source import DatabaseSource, is_address
from radobase.tables.parquet_table import FileList, is_pattern
from wire.identity import TlsConfiguration
from wire.roster import NAME


def _member_name(name: str) -> str:
    if not NAME.fullmatch(name):
        raise ValueError("use 1 to 63 of a-z, 0-9 and '-', beginning with a letter")
    return name


def _target(target: str) -> str:
    split_target(target)
    return target


def _not_an_address(data: Any) -> Any:
    if isinstance(data, str) and is_address(data):
        raise ValueError("is the address of a database; name it as source, with a query")
    return data


READ_AGAIN = (
    "a training then took 3.8 times as long as on one machine with memory enough, and about as long with a disk for "
    "the rest; set worker_disk in [cluster] to a directory on an encrypted disk of the workers"
)
"""Measured: docs/operating.md, section 10."""


class PartyCluster(ClusterSettings):
    """The party's cluster, which sums large tables."""

    from_rows: int = Field(default=10_000_000, ge=1)
    """Tables of at least this many rows are summed on the cluster."""
    reads_table: bool = False
    """Whether workers read the table themselves, each some row groups of its Parquet files or some ranges of the
    `key_column` of a database, and this machine keeps no columns of it: for tables that are larger than a machine.

    Every worker must find the files under the same path, or the database at the same address. All sums are then
    computed on the cluster, whatever `from_rows` is."""
    worker_memory_bytes: int | None = Field(default=None, ge=0)
    """With `reads_table`: memory in which each worker keeps records that it has read, in bytes, 4 a coordinate and row.
    Default: half its machine's (or container's), divided by the workers there."""
    worker_disk: Path | None = None
    """With `reads_table`: directory on the workers' machines in which they keep records that their memory has no room
    for, in files without a name. Default: they read those parts again for each sum."""

    def reading_again(self, record_bytes: int) -> str:
        """A warning that sums may read parts of a table again, a sentence; empty if they need not.

        record_bytes: of all rows, 4 a coordinate and row.
        """
        memory = self.worker_memory_bytes
        is_held = memory is not None and memory * self.workers >= record_bytes
        if not self.reads_table or self.worker_disk is not None or is_held:
            return ""
        has = "half of its machine's" if memory is None else f"{memory / 1e6:,.0f} MB"
        return (
            f"what workers' memory does not hold of {record_bytes / 1e6:,.0f} MB of records ({has} for each of "
            f"{self.workers}) is read again for each sum: {READ_AGAIN}"
        )

    @field_validator("worker_disk")
    @classmethod
    def _is_whole(cls, directory: Path | None) -> Path | None:
        if directory is not None and not directory.is_absolute():
            raise ValueError("write the whole path: it is one of the workers' machines")
        return directory


class PartyConfig(Configuration):
    """Contents of `party.toml`. Paths are relative to the file. The file names key files and contains no keys."""

    # An address that is refused may contain a password.
    model_config = ConfigDict(hide_input_in_errors=True)

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
    decisions: ConfigPath | None = None
    """Directory in which people decide who are other users of this machine than the node's: they see there what waits,
    and leave a file each. It belongs to the node's user, others may write to it, and it has the sticky bit (mode 3770
    or 1777). Default: only the node's user and root decide."""
    ledger: ConfigPath | None = None
    """The privacy ledger. Default: `ledger.sqlite` in `state_directory`."""
    policy: ConfigPath
    """The policy file. The node reads it at start, on `rado party reload` and on SIGHUP."""
    schema_file: ConfigPath = Field(alias="schema")
    """The schema that all parties share, TOML."""
    data: Annotated[ConfigPath | tuple[ConfigPath, ...] | None, BeforeValidator(_not_an_address)] = None
    """The table: `.csv` or `.tsv` (also with `.gz`), `.parquet` or `.pq`; or several Parquet files: a directory, a path
    with wildcards (`"table/part-*.parquet"`), or a list, in whose order they are read.

    The node reads it once, at start. Replace it whole (write a new file in the same directory, then rename): a file
    that changes while it is read is refused. Give either `data` or `source`."""
    database: str | None = Field(default=None, alias="source")
    """A database with the table: `"postgresql://user@host/database"`, `"sqlite:path"` or `"duckdb:path"`, without a
    password. The node reads it once, at start, in a read-only transaction. A PostgreSQL server on another machine must
    have a certificate that can be verified, unless the address says otherwise by `sslmode`."""
    query: str | None = Field(default=None, min_length=1)
    """With `source`: a query that gives the rows. Only the schema's columns and `id_column` are taken from it."""
    key_column: str | None = Field(default=None, min_length=1)
    """With `source`: a column of whole numbers, each once, in whose order the rows are read. Workers that read the
    table themselves (`cluster.reads_table`) each read ranges of it, so it should have an index. Default: the rows are
    read in the query's order."""
    password_file: ConfigPath | None = None
    """With a PostgreSQL `source`: file with the password, in the format of `.pgpass`, mode 0600. Default: PGPASSWORD,
    PGPASSFILE or `~/.pgpass`, as in PostgreSQL's own programs."""
    recode: ConfigPath | None = None
    """The party's recode file, TOML: what its table writes otherwise than the schema, in spellings of cells, names of
    columns and units. The node reads it with the table. Default: the table is as the schema says."""
    data_source: str | None = Field(default=None, min_length=1)
    """Name of the data in the ledger. Default: the data file's name, or the database's. Keep the old name when the same
    rows move to another file or database."""
    id_column: str | None = Field(default=None, min_length=1)
    """Column that identifies the rows, such as a patient's number; no column of the schema.

    It decides, with a key that only this party has, which rows are held back from training: a row stays on its side
    when others are added, removed or sorted, and all rows of one id are on one side. It is never sent. Default: the
    row's place in the table decides.
    """
    epoch_column: str | None = Field(default=None, min_length=1)
    """Column that names each row's epoch, such as the month in which it arrived; no column of the schema. It needs an
    `id_column`. Learners may ask about one epoch, and each epoch has its own budget. How many rows an epoch has is
    public. A row keeps its epoch for good. Default: queries are about all rows only."""
    rows_on_disk: bool = False
    """Whether the records are kept on disk in place of memory, 4 bytes a coordinate and row, in a file of
    `state_directory` that has no name and goes with the node: for tables that are larger than memory."""
    spool_bytes: int = Field(default=10_000_000_000, ge=1 << 20)
    """Disk space for contributions, in bytes. A contribution needs twice its upload and 8 bytes per value."""
    spare_obfuscators: int = Field(default=1000, ge=0, le=1 << 16)
    """Obfuscators that an idle node prepares in advance, in memory only. Each takes about 1 KB and a millisecond."""
    own_obfuscators: bool = False
    """Whether obfuscators never come from a subgroup that a learner's key with short opening names. The encryption of
    this party's contributions then rests on no assumption about that subgroup, and the learner opens totals with them
    as slowly as without short opening."""
    tls: TlsConfiguration
    """Certificate and key of the connection to the coordinator."""
    cluster: PartyCluster | None = None
    """A Ray cluster that sums large tables. Default: this machine sums them and does not import Ray."""
    watch: WatchSettings | None = None
    """Metrics and health. Default: none are served."""
    notify: NotifySettings | None = None
    """The command that tells people that a query waits for their decision. Default: none is run."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level that is logged."""
    log_file: ConfigPath | None = None
    """File for the log. Default: standard error."""
    _database: DatabaseSource | None = PrivateAttr(default=None)

    @field_validator("database")
    @classmethod
    def _address(cls, address: str | None) -> str | None:
        if address is not None:
            DatabaseSource.of(address, "")
        return address

    @model_validator(mode="after")
    def _one_table(self, info: ValidationInfo) -> Self:
        if (self.data is None) == (self.database is None):
            raise ValueError("name the table either by data, a file, or by source, a database")
        if self.data is not None:
            if any(each is not None for each in (self.query, self.password_file, self.key_column)):
                raise ValueError(
                    "query, key_column and password_file are for a database; leave them out, or name it by source"
                )
            if self.data_source is None and (isinstance(self.data, tuple) or is_pattern(self.data)):
                raise ValueError(
                    "several files need a name in the ledger, which stays if there are others; set data_source"
                )
            if self.data == ():
                raise ValueError("data is an empty list; name at least one file")
        elif self.database is not None:
            if self.query is None:
                raise ValueError('source needs a query; add one, such as query = "SELECT * FROM patients"')
            directory = (info.context or {}).get("directory")
            self._database = DatabaseSource.of(
                self.database,
                self.query,
                password_file=self.password_file,
                directory=directory,
                key=self.key_column,
            )
        return self

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if self.cluster is None or not self.cluster.reads_table:
            return self
        if self.data is None and self.key_column is None:
            raise ValueError(
                "cluster.reads_table needs data, Parquet files that workers find, or a key_column of the source"
            )
        if self.epoch_column is not None or self.rows_on_disk:
            raise ValueError(
                "cluster.reads_table leaves no columns on this machine; leave out epoch_column and rows_on_disk"
            )
        return self

    @property
    def table(self) -> Path | FileList | DatabaseSource:
        """What the rows are read from."""
        if isinstance(self.data, tuple):
            return FileList(self.data)
        found = self._database if self.data is None else self.data
        assert found is not None, "one of them is given"
        return found

    @property
    def ledger_file(self) -> Path:
        """Path of the ledger."""
        return self.state_directory / "ledger.sqlite" if self.ledger is None else self.ledger

    @property
    def source(self) -> str:
        """Name of the data source whose budget the ledger tracks."""
        return self.table.name if self.data_source is None else self.data_source


def settings_of(config: PartyConfig) -> dict[str, str]:
    """Each setting as text, so that a running node can be compared with its file. No setting is secret."""
    return {name: str(_plain(value)) for name, value in config.model_dump(by_alias=True).items()}


def _plain(value: Any) -> Any:
    """Paths as they are from anywhere: the node may have been started in another directory."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    return str(value.absolute()) if isinstance(value, Path) else value
