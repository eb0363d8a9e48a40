"""RO-Crates: files, and a description of them that programs read, in a bag whose digests say that it is whole.

RO-Crate 1.2 (https://w3id.org/ro/crate/1.2) in a BagIt 1.0 directory (RFC 8493), as one ZIP file. Nothing is written
here: `Crate.archive` has the whole file.
"""

import hashlib
import io
import zipfile
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from radobase.printing import json_text

ROCRATE = "https://w3id.org/ro/crate/{}"
METADATA = "ro-crate-metadata.json"
JSON, HTML = "application/json", "text/html"
_PAYLOAD = "data/"
_OWNER_ONLY = 0o100600 << 16
"""A plain file that only its owner may read, once it is unpacked."""

Reference = dict[str, str]
"""To an entity: its @id."""


def rfc3339(unix_s: float) -> str:
    """A moment in UTC, by the second."""
    return datetime.fromtimestamp(int(unix_s), UTC).isoformat()


def readable(content: Any) -> str:
    """JSON that people can read too. content: in JSON types; NaN and infinity are no JSON."""
    return json_text(content, indent=1, allow_nan=False) + "\n"


class Description:
    """Entities of one metadata file: its descriptor and its root first, then in the order of `add`."""

    def __init__(self, name: str, description: str, made_at_unix_s: float, *, rocrate: str = "1.2") -> None:
        """rocrate: the version of RO-Crate."""
        self._parts: list[Reference] = []
        self._rocrate = ROCRATE.format(rocrate)
        self.root: dict[str, Any] = {
            "@id": "./",
            "@type": "Dataset",
            "name": name,
            "description": description,
            "datePublished": rfc3339(made_at_unix_s),
            "hasPart": self._parts,
        }
        descriptor = {
            "@id": METADATA,
            "@type": "CreativeWork",
            "about": {"@id": "./"},
            "conformsTo": {"@id": self._rocrate},
        }
        self._entities: dict[str, dict[str, Any]] = {METADATA: descriptor, "./": self.root}

    def add(self, id_: str, type_: str | list[str], **properties: Any) -> Reference:
        """Describe an entity, unless one with this @id is described, and return its reference.

        properties: those that are None, or an empty text or list, are left out.
        """
        kept = {key: value for key, value in properties.items() if value not in (None, "", [], {})}
        self._entities.setdefault(id_, {"@id": id_, "@type": type_, **kept})
        return {"@id": id_}

    def part(self, id_: str, type_: str | list[str], **properties: Any) -> Reference:
        """As `add`, for what the crate contains."""
        found = self.add(id_, type_, **properties)
        if found not in self._parts:
            self._parts.append(found)
        return found

    def text(self) -> str:
        """The metadata file."""
        return readable({"@context": f"{self._rocrate}/context", "@graph": list(self._entities.values())})


class Crate(Description):
    """A crate with its files. identifier: of this crate, wherever it goes."""

    def __init__(self, name: str, description: str, identifier: UUID, made_at_unix_s: float) -> None:
        super().__init__(name, description, made_at_unix_s)
        self.identifier, self._made_at_unix_s = identifier, made_at_unix_s
        self._files: dict[str, bytes] = {}
        self.root["identifier"] = identifier.urn

    def hold(self, path: str, content: str) -> None:
        """Put a file into the crate that is described elsewhere, such as a nested crate's own."""
        self._files[path] = content.encode()

    def file(self, path: str, content: str, media_type: str, *types: str, **properties: Any) -> Reference:
        """Put a file into the crate, and describe it. types: what it is besides a file."""
        self.hold(path, content)
        size = str(len(self._files[path]))
        type_ = ["File", *types] if types else "File"
        return self.part(path, type_, encodingFormat=media_type, contentSize=size, **properties)

    def archive(self, name: str) -> bytes:
        """The ZIP file with one directory of this name, a bag."""
        payload = {_PAYLOAD + path: content for path, content in self._files.items()}
        payload[_PAYLOAD + METADATA] = self.text().encode()
        tags = {
            "bagit.txt": b"BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n",
            "bag-info.txt": self._information(payload),
            "manifest-sha512.txt": _manifest(payload),
        }
        tags["tagmanifest-sha512.txt"] = _manifest(tags)
        held = io.BytesIO()
        # ZIP has no earlier time.
        at = max(datetime.fromtimestamp(self._made_at_unix_s, UTC).timetuple()[:6], (1980, 1, 1, 0, 0, 0))
        with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as made:
            for path, content in {**tags, **payload}.items():
                entry = zipfile.ZipInfo(f"{name}/{path}", at)
                entry.external_attr, entry.compress_type = _OWNER_ONLY, zipfile.ZIP_DEFLATED
                made.writestr(entry, content)
        return held.getvalue()

    def _information(self, payload: Mapping[str, bytes]) -> bytes:
        lines = [
            f"Bagging-Date: {datetime.fromtimestamp(self._made_at_unix_s, UTC):%Y-%m-%d}",
            f"External-Identifier: {self.identifier.urn}",
            f"Payload-Oxum: {sum(map(len, payload.values()))}.{len(payload)}",
        ]
        return "".join(f"{line}\n" for line in lines).encode()


def _manifest(files: Mapping[str, bytes]) -> bytes:
    lines = (f"{hashlib.sha512(content).hexdigest()}  {path}\n" for path, content in sorted(files.items()))
    return "".join(lines).encode()
