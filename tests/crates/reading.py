"""Reads evidence as whoever receives it: the bag by its digests, the crate by the Five Safes profile 0.4."""

import hashlib
import json
import re
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
VALIDATOR = ROOT / "build" / "crate-validator" / "bin" / "python"
RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d)")
STATUSES = {f"http://schema.org/{name}ActionStatus" for name in ("Potential", "Active", "Completed", "Failed")}
MANIFESTS = ("manifest-sha512.txt", "tagmanifest-sha512.txt")


class Received:
    """An archive, unpacked. Asserts that its bag is whole: every file is listed with its digest, and no other."""

    def __init__(self, archive: Path, place: Path) -> None:
        with zipfile.ZipFile(archive) as opened:
            assert {name.partition("/")[0] for name in opened.namelist()} == {archive.stem}
            opened.extractall(place)
        self.bag = place / archive.stem
        self.data = self.bag / "data"
        assert (self.bag / "bagit.txt").read_text().startswith("BagIt-Version: 1.0\n")
        for manifest, listed in zip(MANIFESTS, ("data/*", "[!t]*"), strict=True):
            lines = (self.bag / manifest).read_text().splitlines()
            found = {path: digest for digest, path in (line.split("  ", 1) for line in lines)}
            files = self.bag.rglob("*") if listed == "data/*" else self.bag.glob(listed)
            kept = {
                str(path.relative_to(self.bag)): hashlib.sha512(path.read_bytes()).hexdigest()
                for path in files
                if path.is_file() and (listed != "data/*" or self.data in path.parents)
            }
            assert found == kept, manifest
        self.metadata = json.loads((self.data / "ro-crate-metadata.json").read_text())
        self.entities: dict[str, dict[str, Any]] = {each["@id"]: each for each in self.metadata["@graph"]}

    @property
    def root(self) -> dict[str, Any]:
        return self.entities["./"]

    def of_type(self, type_: str) -> list[dict[str, Any]]:
        return [each for each in self.entities.values() if type_ in _list(each["@type"])]

    def read(self, path: str) -> Any:
        return json.loads((self.data / path).read_text())

    def records(self) -> list[dict[str, Any]]:
        """The record of each output."""
        return [self.read(str(path.relative_to(self.data))) for path in sorted((self.data / "outputs").iterdir())]

    def actions(self, kind: str) -> list[dict[str, Any]]:
        """The actions that assess, of one kind."""
        wanted = {"@id": f"https://w3id.org/shp#{kind}"}
        return [each for each in self.entities.values() if each.get("additionalType") == wanted]

    def check_profile(self) -> None:
        """Assert every MUST of the profile about the metadata file, each in the words of its section."""
        assert self.metadata["@context"] == "https://w3id.org/ro/crate/1.2/context"
        descriptor = self.entities["ro-crate-metadata.json"]
        assert descriptor["conformsTo"] == {"@id": "https://w3id.org/ro/crate/1.2"}
        assert self.root["conformsTo"] == {"@id": "https://w3id.org/5s-crate/0.4"}
        workflow = self.entities[self.root["mainEntity"]["@id"]]
        assert workflow["@type"] == "Dataset"
        assert workflow["conformsTo"]["@id"].startswith("https://w3id.org/workflowhub/workflow-ro-crate")
        for project in _list(self.root["sourceOrganization"]):
            assert self.entities[project["@id"]]["@type"] == "Project"
        self._check_actions()
        for entity in self.entities.values():
            for key, value in entity.items():
                for reference in _list(value):
                    outside = key in {"additionalType", "about"} or not isinstance(reference, dict)
                    assert outside or reference["@id"].startswith("http") or reference["@id"] in self.entities, key
                    assert outside or ".." not in reference["@id"]
        for each in _list(self.root["hasPart"]):
            assert (self.data / each["@id"]).exists()

    def _check_actions(self) -> None:
        runs, parts = self.of_type("CreateAction"), _list(self.root["hasPart"])
        assert runs
        for run in runs:
            assert run["instrument"] == self.root["mainEntity"]
            agent = self.entities[run["agent"]["@id"]]
            assert agent["@type"] == "Person"
            assert self.entities[agent["affiliation"]["@id"]]["@type"] == "Organization"
            assert run["result"] in parts
            assert "object" not in run or run["object"] in parts
        actions = [*runs, *self.of_type("AssessAction"), *self.of_type("UpdateAction")]
        assert {each["@id"] for each in actions} == {each["@id"] for each in _list(self.root["mentions"])}
        for action in actions:
            assert action["name"]
            assert action["actionStatus"] in STATUSES
            agent = self.entities[action["agent"]["@id"]]
            if agent["@type"] == "SoftwareApplication":
                assert self.entities[agent["provider"]["@id"]]["@type"] == "Organization"
            if action["actionStatus"].endswith("/CompletedActionStatus"):
                assert RFC3339.fullmatch(action["endTime"])
            if action not in runs:
                assert {"@id": "./"} in _list(action["object"])

    def validate(self) -> None:
        """Assert what RO-Crate's own validator requires, of the crate and of the workflow's in it."""
        if not VALIDATOR.exists():
            pytest.skip("the validator of crates is not installed: make crate-validator")
        places = [str(self.data), "ro-crate-1.2", str(self.data / "workflow"), "workflow-ro-crate-1.0"]
        command = [str(VALIDATOR), str(ROOT / "tests" / "crates" / "validating.py"), *places]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (ended.returncode, ended.stdout.strip()) == (0, ""), ended.stdout + ended.stderr


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
