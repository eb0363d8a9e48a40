"""The end of a log file: newest first, bounded, whatever is in it."""

import logging
import os

import pytest

from dpcore.errors import ConfigurationError
from radobase.logs import TAIL_BYTES, JsonLines, newest


def line(number: int, level: int = logging.INFO, **fields) -> str:
    """As a node writes it."""
    record = logging.LogRecord("party.ada", level, "", 0, f"event {number}", None, None)
    record.fields = fields
    return JsonLines().format(record)


@pytest.fixture
def file(tmp_path):
    def write(*lines: str):
        path = tmp_path / "node.log"
        path.write_text("".join(f"{each}\n" for each in lines))
        return path

    return write


def test_lines_are_newest_first_with_their_fields(file):
    found = newest(file(line(1), line(2, rows=3, peer="lea\u2028x")), "debug", 10)
    assert [each.event for each in found] == ["event 2", "event 1"]
    assert str(found[0]) == "event 2 rows=3 peer=lea\u2028x"
    assert found[0].at_unix_s >= found[1].at_unix_s > 1_600_000_000


def test_lower_levels_are_left_out(file):
    path = file(line(1, logging.DEBUG), line(2), line(3, logging.WARNING), line(4, logging.ERROR))
    for level, least in (("debug", 1), ("info", 2), ("warning", 3), ("error", 4)):
        assert [each.event for each in newest(path, level, 10)] == [f"event {n}" for n in range(4, least - 1, -1)]


@pytest.mark.parametrize(
    "text",
    ["Killed", "{}", "[1]", "null", '{"level": "info"}', '{"level": ["info"], "time": 1}', "[" * 100_000, "\x00"],
)
def test_what_another_program_wrote_is_shown_as_it_is(file, text):
    (found,) = newest(file(text), "error", 10)
    assert (found.at_unix_s, found.level, found.event) == (None, "", text)


def test_only_the_end_of_a_large_file_is_read(file):
    path = file(*(line(number) for number in range(10_000)))
    assert path.stat().st_size > 2 * TAIL_BYTES
    found = newest(path, "debug", 100_000)
    numbers = [int(each.event.removeprefix("event ")) for each in found]
    # The line at which the end begins is cut, and left out.
    assert numbers == list(range(9_999, 9_999 - len(numbers), -1))
    assert TAIL_BYTES - 1000 < sum(len(line(number)) + 1 for number in numbers) <= TAIL_BYTES
    assert len(newest(path, "debug", 7)) == 7
    few = newest(path, "debug", 100_000, most_shown_bytes=1000)
    assert 0 < len(few) < 20


def test_what_is_no_log_is_refused_with_its_remedy(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "missing", tmp_path, tmp_path / "pipe"):
        with pytest.raises(ConfigurationError, match="log_file"):
            newest(path, "info", 10)
