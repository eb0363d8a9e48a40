"""The coordinator's configuration file."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from dpcore.errors import ConfigurationError
from radofed.common.cluster.jobs import ClusterSettings
from radofed.common.configuration import ConfigPath, Configuration
from wire.identity import TlsConfiguration


class CoordinatorLimits(Configuration):
    """What the coordinator takes on.

    spool_bytes: uploads stored at one time, over all open queries; a query is taken where the most that its cohort can
    upload still fits beside the others'. A total is not counted, it replaces its uploads.
    query_life_s: how far away a query's end may be; its id is remembered until then.
    keep_finished_s, finished_per_learner: how long a finished query and its total are kept, and how many of each
    learner's; the oldest go first.
    """

    open_queries: Annotated[int, Field(ge=1)] = 16
    open_queries_per_learner: Annotated[int, Field(ge=1)] = 4
    spool_bytes: Annotated[int, Field(ge=1)] = 50_000_000_000
    query_life_s: Annotated[int, Field(ge=1, le=1 << 31)] = 90 * 86_400
    keep_finished_s: Annotated[int, Field(ge=0)] = 86_400
    finished_per_learner: Annotated[int, Field(ge=1)] = 200


class CoordinatorCluster(ClusterSettings):
    """The coordinator's cluster. from_bytes: a query whose cohort's uploads have at least so many is added there."""

    from_bytes: Annotated[int, Field(ge=0)] = 1 << 28


class CoordinatorConfig(Configuration):
    """coordinator.toml. listen: "host:port", port 0 for any free one; roster: the signed roster's file.

    cluster: a Ray cluster that makes large totals; without it this machine makes all, and Ray is not imported.
    """

    federation: str
    name: str = "coordinator"
    listen: str = "127.0.0.1:7443"
    federation_key: ConfigPath
    roster: ConfigPath
    state_directory: ConfigPath
    tls: TlsConfiguration
    limits: CoordinatorLimits = CoordinatorLimits()
    cluster: CoordinatorCluster | None = None
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_file: ConfigPath | None = None

    @property
    def address_file(self) -> Path:
        """Holds the bound "host:port" while the coordinator runs."""
        return self.state_directory / "address"

    @property
    def lock_file(self) -> Path:
        """Held locked while the coordinator runs."""
        return self.state_directory / "lock"

    @property
    def store_file(self) -> Path:
        """The SQLite file with queries and statements."""
        return self.state_directory / "coordinator.sqlite"

    @property
    def spool_directory(self) -> Path:
        """Uploads and totals."""
        return self.state_directory / "spool"

    @property
    def host_and_port(self) -> tuple[str, int]:
        """`listen` in its parts. Raises ConfigurationError."""
        host, colon, port = self.listen.rpartition(":")
        if not colon or not host or not port.isdecimal() or len(port) > 5 or int(port) > 65535:
            raise ConfigurationError(f"listen is {self.listen!r}: write it as host:port, such as 0.0.0.0:7443")
        return host, int(port)
