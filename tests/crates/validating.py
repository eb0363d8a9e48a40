"""Validates crates with the ecosystem's own programs, without a network. Runs in the environment of validator.txt.

    build/crate-validator/bin/python tests/crates/validating.py FOLDER PROFILE [FOLDER PROFILE ...]

Prints a line for each requirement that is not met, of those that a profile calls REQUIRED.
"""

import io
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

from requests.adapters import HTTPAdapter
from requests_cache import CachedSession
from rocrate.rocrate import ROCrate
from rocrate_validator import services
from rocrate_validator.models import ValidationSettings
from urllib3 import HTTPResponse

CONTEXT = "https://w3id.org/ro/crate/{}/context"


class Local(HTTPAdapter):
    """Serves RO-Crate's context from the package `rocrate`, which has that of 1.3 and so all older terms."""

    def send(self, request, **_):
        content = files("rocrate").joinpath("data", "ro-crate.jsonld").read_bytes()
        if request.url == CONTEXT.format("1.1"):
            # Where 1.1 had these terms.
            content = content.replace(b"https://bioschemas.org/terms/", b"https://bioschemas.org/")
        headers = {"Content-Type": "application/ld+json"}
        raw = HTTPResponse(
            io.BytesIO(content), headers=headers, status=200, preload_content=False, request_url=request.url
        )
        return self.build_response(request, raw)


def main() -> int:
    """Validate, and return 1 if a requirement is not met."""
    cache = Path(tempfile.mkdtemp()) / "http"
    with CachedSession(cache_name=str(cache), backend="sqlite", expire_after=-1) as session:
        session.mount("https://", Local())
        for version in ("1.1", "1.2"):
            assert session.get(CONTEXT.format(version)).ok
    faults = []
    for folder, profile in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
        settings = ValidationSettings(
            rocrate_uri=folder,
            profile_identifier=profile,
            requirement_severity="REQUIRED",
            offline=True,
            cache_path=cache,
            abort_on_first=False,
        )
        issues = services.validate(settings).get_issues()
        faults += [f"{folder}: {each.check.identifier}: {each.message} ({each.violatingEntity})" for each in issues]
        # The library reads what was written, and finds every part.
        assert ROCrate(folder).mainEntity is not None
    sys.stdout.write("\n".join(faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
