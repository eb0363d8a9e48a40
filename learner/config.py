"""A learner's configuration file."""

from pathlib import Path

from pydantic import Field

from learner.studies import StudyTable
from radobase.configuration import ConfigPath, Configuration
from wire.identity import TlsConfiguration


class LearnerConfig(Configuration):
    """Contents of `learner.toml`. Paths are relative to the file. The file names keys and contains none."""

    federation: str
    """Name of the federation, as in the roster."""
    name: str
    """Name of this learner, as in the roster."""
    coordinator: str
    """Address of the coordinator, `"host:port"`."""
    federation_key: ConfigPath
    """Public key of the federation, PEM. The learner accepts only rosters signed by this key."""
    signing_key: ConfigPath
    """Private signing key of this learner, PEM. Parties pin the public key."""
    parties: ConfigPath = Field(default=Path("parties.toml"), validate_default=True)
    """The parties that this learner asks. `rado learner accept` adds one. Without the file no party is asked."""
    paillier_key: ConfigPath
    """Secret Paillier key that decrypts totals, a JSON Web Key. `rado learner keygen` makes it."""
    state_directory: ConfigPath
    """Directory for the queries that were sent and the newest roster. Without it, totals cannot be fetched."""
    releases_directory: ConfigPath
    """Directory that gets one sub-directory for each release."""
    tls: TlsConfiguration
    """Certificate and key of the connection to the coordinator."""
    study: StudyTable | None = None
    """The study that this learner asks for. Every query states it, unless its command has `--study`. Without either,
    queries name no study."""
