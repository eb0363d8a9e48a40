"""A learner's configuration file."""

from radofed.common.configuration import ConfigPath, Configuration
from wire.identity import TlsConfiguration


class LearnerConfig(Configuration):
    """What `learner.toml` holds; paths are relative to the file, no key is in it.

    federation, name: as in the roster. coordinator: "host:port". federation_key: the federation's public key, PEM,
    pinned. signing_key: this learner's own, PEM. paillier_key: its secret JSON Web Key (learner.keys). state_directory:
    queries asked and the newest roster seen; losing it loses the totals that were not yet fetched.
    releases_directory: one directory for each release.
    """

    federation: str
    name: str
    coordinator: str
    federation_key: ConfigPath
    signing_key: ConfigPath
    paillier_key: ConfigPath
    state_directory: ConfigPath
    releases_directory: ConfigPath
    tls: TlsConfiguration
