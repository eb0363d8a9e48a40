"""Makes the backup of a node, also while it runs, or of an operator's directory."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography.x509.oid import NameOID

from radobase.version import program_version
from radofed.backup.archive import write_archive
from radofed.backup.contents import Contents
from radofed.backup.manifest import OPERATOR, Manifest
from radofed.node_config import load_node_config, role_of
from radofed.provision_roster import ROSTER_FILE, signed_roster
from wire.envelopes import load_public_key
from wire.identity import TlsFiles
from wire.roster import Role

# ruff: noqa: PLC0415  (a role's own modules are imported where a backup is of that role)

if TYPE_CHECKING:
    from coordinator.config import CoordinatorConfig
    from learner.config import LearnerConfig
    from parties.config import PartyConfig

_AUTHORITY_NAME = "radofed "


def back_up(config: Path, archive: Path, *, with_keys: bool = False, now_unix_s: float | None = None) -> Manifest:
    """Write the backup of the node with this configuration file, which may run. Returns the manifest.

    Raises ConfigurationError if a file cannot be read, other users can read a key, or the archive cannot be written.
    """
    node, role = load_node_config(config), role_of(config)
    config = config.resolve()
    contents = Contents(config.parent, archive, with_keys=with_keys)
    contents.add("configuration", config)
    contents.add("federation_key", node.federation_key)
    contents.add("ca", node.tls.ca)
    contents.add("certificate", node.tls.certificate)
    contents.add_key("key", node.tls.key)
    match role:
        case Role.PARTY:
            _add_party(contents, node)  # type: ignore[arg-type]
        case Role.COORDINATOR:
            _add_coordinator(contents, node)  # type: ignore[arg-type]
        case Role.LEARNER:
            _add_learner(contents, node)  # type: ignore[arg-type]
    contents.add_beside()
    contents.finish()
    return _write(archive, contents, role.value, node.name, node.federation, config.name, now_unix_s)


def back_up_operator(
    directory: Path, archive: Path, *, with_keys: bool = False, now_unix_s: float | None = None
) -> Manifest:
    """Write the backup of an operator's directory. Returns the manifest. Raises ConfigurationError."""
    directory = directory.resolve()
    federation = federation_of(directory)
    contents = Contents(directory, archive, with_keys=with_keys)
    contents.add_tree(OPERATOR, directory)
    contents.finish()
    return _write(archive, contents, OPERATOR, OPERATOR, federation, "", now_unix_s)


def federation_of(directory: Path) -> str:
    """The federation of an operator's directory. Raises ConfigurationError if it is none."""
    key = load_public_key(directory / "federation.pub")
    if (directory / ROSTER_FILE).exists():
        return signed_roster(directory / ROSTER_FILE, key).federation
    # Founded, and without members yet.
    ca = directory / "ca.pem"
    names = TlsFiles(ca, ca, ca).authorities()[0].subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value).removeprefix(_AUTHORITY_NAME) if names else ""


def _write(
    archive: Path,
    contents: Contents,
    role: str,
    name: str,
    federation: str,
    configuration: str,
    now_unix_s: float | None,
) -> Manifest:
    at = int(time.time() if now_unix_s is None else now_unix_s)
    manifest = Manifest(
        role, name, federation, at, program_version(), configuration, (), contents.outside, tuple(contents.missing)
    )
    return write_archive(archive, manifest, contents.items)


def _add_party(contents: Contents, config: "PartyConfig") -> None:
    from parties.data.row_guard import FILE as ROWS_FILE
    from parties.history.database import FILE as HISTORY_FILE
    from parties.rosters import former_files
    from parties.state_directory import history_copy, ledger_copy

    state = config.state_directory
    contents.add("policy", config.policy)
    if config.schema_file.exists():
        contents.add("schema", config.schema_file)
    contents.add_key("signing_key", config.signing_key)
    contents.add_key("state_directory", state / "secret", state)
    if (state / ROSTER_FILE).exists():
        contents.add("state_directory", state / ROSTER_FILE, state)
    for path in former_files(state):
        contents.add("state_directory", path, state)
    if (state / ROWS_FILE).exists():
        contents.add("state_directory", state / ROWS_FILE, state)
    # The history first: what it lacks is made from the ledger's charges.
    if (history := history_copy(config)) is not None:
        contents.add_database("state_directory", state / HISTORY_FILE, history)
    if (ledger := ledger_copy(config)) is not None:
        label = "state_directory" if config.ledger is None else "ledger"
        contents.add_database(label, config.ledger_file, ledger, is_ledger=True)
    else:
        contents.leave_out("the ledger", "this party has none yet")
    contents.leave_out("the rows", "a backup has no row of the table")
    if config.password_file is not None:
        contents.leave_out("password_file", "the password of the database")
    if config.cluster is not None and config.cluster.token_file is not None:
        contents.leave_out("cluster.token_file", "the token of the cluster")


def _add_coordinator(contents: Contents, config: "CoordinatorConfig") -> None:
    from coordinator.spool import TOTAL
    from coordinator.store import store_copy

    contents.add("roster", config.roster)
    # The store first: the totals of the queries that it has as complete are on disk.
    if config.store_file.exists():
        contents.add_database("state_directory", config.store_file, store_copy(config.store_file))
    if config.admissions_directory.is_dir():
        contents.add_tree(
            "state_directory",
            config.state_directory,
            only=lambda path: path.parts[0] == config.admissions_directory.name,
        )
    contents.add_tree(
        "state_directory",
        config.state_directory,
        only=lambda path: path.parts[0] == config.spool_directory.name and path.parent.name == TOTAL,
    )
    contents.leave_out("uploads", "of attempts under way, which are lost unless their parties can send them again")
    if config.cluster is not None and config.cluster.token_file is not None:
        contents.leave_out("cluster.token_file", "the token of the cluster")


def _add_learner(contents: Contents, config: "LearnerConfig") -> None:
    contents.add_key("signing_key", config.signing_key)
    if config.parties.exists():
        contents.add("parties", config.parties)
    for path in sorted(config.paillier_key.parent.glob(f"{config.paillier_key.stem}*{config.paillier_key.suffix}")):
        contents.add_key("paillier_key", path)
    contents.add_tree("state_directory", config.state_directory)
    contents.add_tree("releases_directory", config.releases_directory)
    contents.leave_out("models and journals", "a backup has none: they are where you wrote them")
