"""Directories of a party, a coordinator, a learner and an operator, with what recorded nodes wrote into them."""

import gzip
import shutil
from pathlib import Path

from radofed.provision import provision

RECORDED = Path(__file__).resolve().parents[2] / "recorded/0.3.0"


def make_federation(root: Path) -> Path:
    """A federation called clinics: `federation/` of the operator, `members/NAME/`. Its nodes do not run."""
    provision(
        root / "clinics", federation="clinics", coordinator_address="127.0.0.1:1", parties=["ada", "bo", "cy"],
        learners=["lab"],
    )  # fmt: skip
    members = root / "clinics/members"
    _unpack("coordinator.sqlite", members / "coordinator/state")
    total = members / "coordinator/state/spool" / ("ab" * 32) / "total"
    total.mkdir(parents=True)
    (total / "0-of-a-total").write_bytes(b"t" * 100)
    upload = members / "coordinator/state/spool" / ("ab" * 32) / "1/ada"
    upload.mkdir(parents=True)
    (upload / "0-of-an-upload").write_bytes(b"an upload")
    for name in ("queries", "releases"):
        shutil.copytree(RECORDED / name, members / "lab" / ("state/queries" if name == "queries" else name))
    shutil.copy(RECORDED / "paillier.jwk", members / "lab")
    for key in [members / "lab/paillier.jwk", *members.glob("lab/state/queries/*/opening.key")]:
        key.chmod(0o600)
    return root / "clinics"


def _unpack(name: str, state: Path) -> None:
    state.mkdir(mode=0o700)
    (state / name).write_bytes(gzip.decompress((RECORDED / f"{name}.gz").read_bytes()))


def config_of(federation: Path, name: str) -> Path:
    roles = {"coordinator": "coordinator", "lab": "learner"}
    return federation / "members" / name / f"{roles.get(name, 'party')}.toml"


def content_of(directory: Path) -> dict[str, bytes]:
    """Every file below a directory, by its path."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }
