"""The file with the ledger's head: what is refused in it, and texts of bounds that this program did not write."""

import hashlib
import json
from dataclasses import replace
from fractions import Fraction

import pytest

from dpcore.accounting.filters import Loss
from dpcore.errors import ConfigurationError
from parties.ledger.chain import Head
from parties.ledger.charges import RECORD, UnreadableEntryError, read_charge
from parties.ledger.head import Account, LocalHead, Sums, _check, read_or_none

LOSS = Loss(Fraction(1, 3), Fraction(1, 10**6), Fraction(1, 8), Fraction(0))
ACCOUNT = Account(Sums(((RECORD, LOSS),), 1), (b"abcd",))
HEAD = LocalHead(("f", "ada", "data.csv"), bytes(32), Head(7, b"d" * 32), ACCOUNT)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "ledger.sqlite.head"
    HEAD.write(path)
    return path


def test_what_was_written_is_read(file):
    found = LocalHead.read(file)
    assert (found.owner, found.genesis, found.head) == (HEAD.owner, HEAD.genesis, HEAD.head)
    assert found.account.sums.unbounded == 1


def test_the_check_is_that_of_the_sorted_content():
    """Other versions of this program read the file."""
    said = b'rado.v1/ledger-local-head\0{"entries": 7, "format": 1}'
    assert _check({"format": 1, "entries": 7}) == hashlib.sha256(said).hexdigest()


def test_an_owner_that_is_not_known_is_empty():
    assert LocalHead.of({"party": "ada"}, bytes(32), HEAD.head, ACCOUNT).owner == ("", "ada", "")


def test_an_account_that_does_not_fit_is_left_out(file):
    too_large = Sums(((RECORD, Loss(Fraction(10**400), Fraction(0), Fraction(0), Fraction(0))),), 0)
    for account in (Account(too_large, ()), None):
        replace(HEAD, account=account).write(file)
        assert LocalHead.read(file) == replace(HEAD, account=None)


@pytest.mark.parametrize(
    "changes",
    [
        {"format": 2},
        {"entries": -1},
        {"digest": "00" * 31},
        {"genesis": "00" * 33},
        {"digest": "00" * 31, "genesis": "00" * 31},
        {"entries": "many"},
    ],
    ids=str,
)
def test_a_head_that_is_not_one_is_refused_also_with_its_own_check(file, changes):
    content = json.loads(file.read_text()) | changes
    del content["check"]
    file.write_text(json.dumps({**content, "check": _check(content)}))
    with pytest.raises(ConfigurationError, match="damaged"):
        LocalHead.read(file)


def test_a_head_is_read_where_a_damaged_one_counts_as_none(file):
    assert read_or_none(file) == LocalHead.read(file) is not None
    file.write_text("{}")
    assert read_or_none(file) is None


def test_a_head_without_its_check_is_damaged(file):
    content = json.loads(file.read_text())
    del content["check"]
    file.write_text(json.dumps(content))
    with pytest.raises(ConfigurationError, match="damaged"):
        LocalHead.read(file)


def test_a_changed_number_is_noticed(file):
    file.write_text(file.read_text().replace('"entries": 7', '"entries": 8'))
    with pytest.raises(ConfigurationError, match="damaged"):
        LocalHead.read(file)


@pytest.mark.parametrize(
    "bounds",
    [
        '[["events", 1.5]]',
        '[["events", true]]',
        '[["events", 0]]',
        '[["record", 1, "", "1/3", "0/1", "0/1", "0/1"]]',
        '[["record", "", 2, "1/3", "0/1", "0/1", "0/1"]]',
        '[["record", "", "", "1e9", "0/1", "0/1", "0/1"]]',
    ],
)
def test_bounds_that_this_program_did_not_write_are_refused(bounds):
    with pytest.raises(UnreadableEntryError):
        read_charge(bounds, "lea", None)
