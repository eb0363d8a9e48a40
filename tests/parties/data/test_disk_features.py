"""Records that a party keeps on disk: the same records, in a file that nobody finds."""

import errno
import os
import stat
from pathlib import Path

import numpy as np
import pytest

from dpcore.errors import DataError
from parties.config import PartyConfig
from parties.data.dataset import load, place_of
from parties.data.disk_features import RowsOnDisk
from radobase.logs import Log
from tests.federation.party import SCHEMA


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "table.csv"
    rows = [f"{row % 100},{'yes' if row % 3 else 'no'},{'yes' if row % 2 else 'no'}" for row in range(5000)]
    path.write_text("\n".join(["age,smoker,stayed", *rows]) + "\n")
    return path


@pytest.mark.parametrize("slab_bytes", [1, 1 << 20])
def test_the_records_are_those_in_memory(table, tmp_path, monkeypatch, slab_bytes):
    """A CSV file declares no rows: the file on disk grows with it, and shrinks at the end."""
    monkeypatch.setattr("parties.data.dataset._SLAB_BYTES", slab_bytes)
    kept, held = load(table, SCHEMA, place=RowsOnDisk(tmp_path)), load(table, SCHEMA)
    np.testing.assert_array_equal(kept.records.features, held.records.features)
    assert kept.records.digest == held.records.digest
    assert kept.report == held.report
    # And as soon as the records are gone, so is the place that they took.
    del kept
    assert not [link for link in descriptors() if str(tmp_path) in link]


def descriptors():
    found = []
    for link in Path("/proc/self/fd").iterdir():
        try:
            found.append(str(link.readlink()))
        except OSError:
            continue
    return found


def test_the_file_has_no_name_and_only_its_owner_may_read_it(tmp_path):
    place = RowsOnDisk(tmp_path)
    features = place.resized(None, 1000, 3)
    features[:] = 7
    assert not list(tmp_path.iterdir())
    assert place._descriptor is not None
    found = os.fstat(place._descriptor)
    assert stat.S_IMODE(found.st_mode) == 0o600
    assert found.st_nlink == 0
    assert found.st_size == features.nbytes
    larger = place.resized(features, 2000, 3)
    assert (larger[:1000] == 7).all()
    assert larger.shape == (2000, 3)


@pytest.mark.parametrize(
    ("number", "words"), [(errno.ENOSPC, "has no room for rows of 120 bytes; free some"), (errno.EIO, "cannot keep")]
)
def test_a_disk_that_has_no_room_is_said_before_a_row_is_written(tmp_path, monkeypatch, number, words):
    def full(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("os.posix_fallocate", full)
    with pytest.raises(DataError, match=words):
        RowsOnDisk(tmp_path).resized(None, 10, 3)


def test_the_configuration_says_where_rows_are(offline):
    config = PartyConfig.load(offline.directory("ada") / "party.toml")
    assert place_of(config, Log("party")) is None
    on_disk = place_of(config.model_copy(update={"rows_on_disk": True}), Log("party"))
    assert isinstance(on_disk, RowsOnDisk)
    assert on_disk._directory == config.state_directory
