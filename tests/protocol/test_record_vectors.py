"""The vectors from the cells of a table to what a party stores, and of joining."""

import importlib.util
import json
from pathlib import Path

import pytest

from dpcore.errors import DataError
from dpcore.records.schema import Schema
from radobase.tables.tables import open_table, stored_blocks
from radofed.joining.requests import JoinRequest
from wire.envelopes import Envelope, fingerprint, spoken

VECTORS = Path(__file__).resolve().parents[1] / "vectors"
RECORDS = json.loads((VECTORS / "records.json").read_text())


def script(name: str):
    """A module that writes vectors."""
    specification = importlib.util.spec_from_file_location(name, VECTORS / f"{name}.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_the_file_is_what_its_script_writes():
    made = script("make_record_vectors")
    for name, make in made.FILES.items():
        assert (VECTORS / name).read_text() == made.base.text(make())


@pytest.mark.parametrize("vector", RECORDS["fingerprints"])
def test_fingerprints(vector):
    key = bytes.fromhex(vector["public_key"])
    assert spoken(key) == vector["digits"]
    assert fingerprint(key).replace(":", "") == vector["key_id"]


def test_a_request_to_join():
    vector = RECORDS["joining"]
    envelope = Envelope(*(bytes.fromhex(vector[part]) for part in ("payload", "key_id", "signature")))
    request = JoinRequest.read(envelope.to_bytes(), Path("vector"))
    assert (request.federation, request.name, request.rows_at_least) == ("vectors", "a", 100)
    assert request.fingerprint == vector["digits"]
    assert request.member.tls_key_hash != b""


def stored(schema: Schema, text: str, tmp_path: Path):
    file = tmp_path / "rows.csv"
    file.write_text(text)
    (block,) = stored_blocks(open_table(file), schema)
    return block


def test_tables(tmp_path):
    for vector in RECORDS["tables"]:
        schema = Schema.from_canonical(vector["schema"].encode())
        assert schema.digest.hex() == vector["digest"]
        assert list(schema.coordinates) == vector["coordinates"]
        block = stored(schema, vector["csv"], tmp_path)
        rows = vector["rows"]
        assert block.usable.tolist() == [row["usable"] for row in rows], vector["name"]
        assert block.features.tolist() == [row["coordinates"] for row in rows], vector["name"]
        labels = block.labels.tolist()
        assert [label for label, row in zip(labels, rows, strict=True) if row["usable"]] == [
            row["label"] for row in rows if row["usable"]
        ], vector["name"]
        if schema.weight is not None:
            assert block.weights.tolist() == [row["weight"] for row in rows]


def test_refused_cells(tmp_path):
    assert len(RECORDS["refused_cells"]) > 10
    for vector in RECORDS["refused_cells"]:
        schema = Schema.from_canonical(vector["schema"].encode())
        with pytest.raises(DataError):
            stored(schema, f'c,y\n"{vector["cell"]}",1\n', tmp_path)
