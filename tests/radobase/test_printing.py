"""Texts for people: names, times, tables."""

import time

import pytest

from radobase.printing import amount, columns, duration, in_lines, listed, local_time, printable


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (61, "1 min 1 s"),
        (7205, "2 h"),
        (7265, "2 h 1 min"),
        (9e4, "1 d 1 h"),
    ],
)
def test_durations(seconds, words):
    assert duration(seconds) == words


@pytest.fixture
def zone(monkeypatch):
    def at(name):
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield at
    monkeypatch.undo()
    time.tzset()


def test_times_are_local_and_name_their_zone(zone):
    zone("UTC0")
    assert local_time(1_790_000_000) == "2026-09-21 14:13:20 UTC"
    zone("EST5")
    assert local_time(1_790_000_000) == "2026-09-21 09:13:20 EST"


@pytest.mark.parametrize("unix_s", [1 << 62, -(1 << 62), float("inf")])
def test_a_peer_s_impossible_time_is_no_error(unix_s):
    assert local_time(unix_s) == "no valid time"


def test_a_long_list_says_how_many_more_there_are():
    assert listed(["a"]) == "a"
    assert listed([*"abcdefgh"]) == "a, b, c, d, e, f and 2 more"


def test_columns_are_as_wide_as_their_cells():
    assert columns(("name", "n"), [("a", "10"), ("\x1b[2J", "5")], right={1}) == [
        "name      n",
        "a        10",
        r"\x1b[2J   5",
    ]


def test_control_characters_are_escaped():
    assert printable("a\x1b[2J\nb\x07") == "a\\x1b[2J\\nb\\x07"
    assert in_lines(["a\nb", "c\u202e", in_lines(["d", "e"])]) == "a\\nb\nc\\u202e\nd\ne"


def test_one_of_a_unit_is_no_plural():
    found = [amount(count, unit) for count, unit in ((0, "row"), (1, "row"), (2, "usable row"), (1, "party"))]
    assert found == ["0 rows", "1 row", "2 usable rows", "1 party"]
    found = [amount(3, unit) for unit in ("party", "query", "entry", "day")]
    assert found == ["3 parties", "3 queries", "3 entries", "3 days"]
