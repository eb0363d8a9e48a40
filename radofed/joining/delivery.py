"""The coordinator's administrator leaves what the operator signed, for members to fetch."""

from collections.abc import Sequence
from pathlib import Path

from coordinator.config import CoordinatorConfig
from coordinator.membership import Admissions, read_own_roster
from dpcore.errors import ConfigurationError
from radobase.logs import Log
from radofed.joining.installing import Admission, is_older, read_file
from wire.envelopes import load_public_key
from wire.identity import Certificate


def leave(config: Path, files: Sequence[Path]) -> list[str]:
    """Leave admissions at a coordinator, running or not, and return the members' names.

    Raises ConfigurationError, and leaves none, if one is not signed by the federation's key, is for no member of the
    coordinator's roster, or is older than the one that waits for its member.
    """
    loaded = CoordinatorConfig.load(config)
    key, members = load_public_key(loaded.federation_key), read_own_roster(loaded).members
    found: dict[str, bytes] = {}
    left = Admissions(loaded.admissions_directory, Log(loaded.name))
    for file in files:
        content = read_file(file)
        admission = Admission.of_bytes(content, file)
        if admission.federation_key != key:
            raise ConfigurationError(f"{file}: is of another federation than {loaded.federation_key}")
        san = Certificate.of_pem(admission.certificate, file).san
        member = next((member for member in members if member.certificate_san == san), None)
        if member is None:
            raise ConfigurationError(
                f"{file}: is for {san}, and the roster lists no such member: install the operator's newest roster "
                "first, with `rado coordinator roster`"
            )
        if (before := left.of(member.name)) and _is_older(admission, before, file):
            raise ConfigurationError(
                f"{file}: is older than the answer for {member.name} that waits here; leave the operator's newest one"
            )
        found[member.name] = content
    for name, content in found.items():
        left.leave(name, content)
    return list(found)


def _is_older(admission: Admission, before: bytes, file: Path) -> bool:
    """Whether what waits here has a newer roster or certificate. What cannot be read is replaced."""
    try:
        present = Admission.of_bytes(before, file)
    except ConfigurationError:
        return False
    return admission.roster.version < present.roster.version or is_older(admission.certificate, present.certificate)
