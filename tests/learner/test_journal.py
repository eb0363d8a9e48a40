"""Journals that cannot be read. tests/end_to_end/test_asking.py tests resuming with real processes."""

import json

import pytest

from learner.journal import FORMAT, JournalError, SessionSource

ENTRY = {"asked": "00" * 32, "query_id": "11" * 32}
GOOD = {"format": FORMAT, "format_version": 1, "rounds": [ENTRY]}


@pytest.mark.parametrize(
    "content",
    [
        " ",
        "[]",
        "[" * 100_000,
        json.dumps({**GOOD, "format": "radofed-model"}),
        json.dumps({**GOOD, "format_version": 2}),
        json.dumps({**GOOD, "rounds": {}}),
        json.dumps({**GOOD, "rounds": [ENTRY, {"asked": "00"}]}),
        json.dumps({**GOOD, "rounds": [{**ENTRY, "query_id": "xyz"}]}),
        json.dumps({**GOOD, "rounds": [{**ENTRY, "query_id": 7}]}),
    ],
)
def test_another_file_is_not_a_journal(tmp_path, content):
    path = tmp_path / "journal"
    path.write_text(content)
    with pytest.raises(JournalError, match="give another file"):
        SessionSource(None, path)
    assert path.read_text() == content


def test_a_missing_journal_is_created(tmp_path):
    path = tmp_path / "journal"
    SessionSource(None, path)
    # Not before a query is sent: a refused command leaves no file.
    assert not path.exists()
    path.write_text(json.dumps(GOOD))
    SessionSource(None, path)
    assert json.loads(path.read_text()) == GOOD


def test_a_name_that_is_too_long_is_refused(tmp_path):
    with pytest.raises(JournalError, match="give another file"):
        SessionSource(None, tmp_path / ("x" * 300))


def test_a_directory_is_not_a_journal(tmp_path):
    with pytest.raises(JournalError):
        SessionSource(None, tmp_path)
