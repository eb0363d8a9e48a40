"""The coordinator's configuration file."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from dpcore.errors import ConfigurationError
from radobase.cluster_jobs import ClusterSettings
from radobase.configuration import ConfigPath, Configuration
from radobase.metrics import WatchSettings
from wire.identity import TlsConfiguration


class LearnerLimits(Configuration):
    """Limits of one learner, in place of those of every learner."""

    open_queries: Annotated[int, Field(ge=0)] | None = None
    """In place of `open_queries_per_learner`."""
    queries_per_day: Annotated[int, Field(ge=0)] | None = None
    """In place of `queries_per_day_per_learner`."""
    upload_bytes_per_day: Annotated[int, Field(ge=0)] | None = None
    """In place of `upload_bytes_per_day_per_learner`."""


@dataclass(frozen=True)
class Quota:
    """The limits that hold for a learner. None: no limit."""

    open_queries: int
    queries_per_day: int | None
    upload_bytes_per_day: int | None


class CoordinatorLimits(Configuration):
    """Limits on the work that the coordinator accepts."""

    open_queries: Annotated[int, Field(ge=1)] = 16
    """Queries open at one time, over all learners."""
    open_queries_per_learner: Annotated[int, Field(ge=1)] = 4
    """Queries of one learner open at one time."""
    queries_per_day_per_learner: Annotated[int, Field(ge=0)] | None = None
    """Queries that one learner may ask within 24 hours. Default: any number."""
    upload_bytes_per_day_per_learner: Annotated[int, Field(ge=0)] | None = None
    """Bytes of uploads that the queries of one learner may cause within 24 hours. The largest cohort of each query
    counts. Default: any number."""
    learners: dict[str, LearnerLimits] = Field(default_factory=dict)
    """Limits of single learners, by their names in the roster."""
    spool_bytes: Annotated[int, Field(ge=1)] = 50_000_000_000
    """Disk space for uploads, over all open queries, in bytes. A query is accepted only if the largest upload of its
    cohort fits in addition to those of the others. A total replaces its uploads and does not count."""
    query_life_s: Annotated[int, Field(ge=1, le=1 << 31)] = 90 * 86_400
    """Longest time from now to the expiry of a new query, in seconds. The query's id is stored until it expires."""
    keep_finished_s: Annotated[int, Field(ge=0)] = 86_400
    """Time for which a finished query and its total are kept, in seconds."""
    finished_per_learner: Annotated[int, Field(ge=1)] = 200
    """Finished queries that are kept for each learner. The oldest are deleted first."""

    def of_learner(self, name: str) -> Quota:
        """The limits that hold for a learner."""
        own = self.learners.get(name, LearnerLimits())

        def chosen(single: int | None, general: int | None) -> int | None:
            return general if single is None else single

        return Quota(
            self.open_queries_per_learner if own.open_queries is None else own.open_queries,
            chosen(own.queries_per_day, self.queries_per_day_per_learner),
            chosen(own.upload_bytes_per_day, self.upload_bytes_per_day_per_learner),
        )


class CoordinatorCluster(ClusterSettings):
    """The coordinator's cluster, which adds large totals."""

    from_bytes: Annotated[int, Field(ge=0)] = 1 << 28
    """Totals whose uploads have at least this many bytes are added on the cluster."""


class CoordinatorConfig(Configuration):
    """Contents of `coordinator.toml`. Paths are relative to the file."""

    federation: str
    """Name of the federation, as in the roster."""
    name: str = "coordinator"
    """Name of this coordinator, as in the roster."""
    listen: str = "127.0.0.1:7443"
    """Address to listen on, `"host:port"`. Port 0 takes any free port."""
    federation_key: ConfigPath
    """Public key of the federation, PEM. The coordinator serves only rosters that this key signed."""
    roster: ConfigPath
    """The signed roster. `rado coordinator roster FILE` installs a newer one, also while the coordinator runs."""
    state_directory: ConfigPath
    """Directory for the database, uploads and totals. Only one coordinator may use it at a time."""
    tls: TlsConfiguration
    """Certificate and key that the coordinator serves with."""
    limits: CoordinatorLimits = CoordinatorLimits()
    """Limits on the work that the coordinator accepts."""
    cluster: CoordinatorCluster | None = None
    """A Ray cluster that adds large totals. Default: this machine adds all of them and does not import Ray."""
    watch: WatchSettings | None = None
    """Metrics and health. Default: none are served."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level that is logged."""
    log_file: ConfigPath | None = None
    """File for the log. Default: standard error."""

    @property
    def address_file(self) -> Path:
        """File with the bound "host:port" while the coordinator runs."""
        return self.state_directory / "address"

    @property
    def lock_file(self) -> Path:
        """File that is locked while the coordinator runs."""
        return self.state_directory / "lock"

    @property
    def store_file(self) -> Path:
        """The SQLite file with queries and statements."""
        return self.state_directory / "coordinator.sqlite"

    @property
    def spool_directory(self) -> Path:
        """Directory of uploads and totals."""
        return self.state_directory / "spool"

    @property
    def admissions_directory(self) -> Path:
        """Directory of operators' answers that members fetch."""
        return self.state_directory / "admissions"

    @property
    def host_and_port(self) -> tuple[str, int]:
        """`listen` split into host and port. Raises ConfigurationError."""
        host, colon, port = self.listen.rpartition(":")
        if not colon or not host or not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65535:
            raise ConfigurationError(f"listen is {self.listen!r}: write it as host:port, such as 0.0.0.0:7443")
        return host, int(port)
