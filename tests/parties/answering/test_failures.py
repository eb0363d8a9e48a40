"""What a party's log says of a failure."""

from pathlib import Path

import pytest

from parties.answering.coordinator_calls import as_refusal, named
from parties.database import LedgerFileError
from parties.history.database import HistoryFileError
from wire.errors import Code


@pytest.mark.parametrize("kind", [LedgerFileError, HistoryFileError])
def test_a_damaged_file_of_the_party_is_said_in_full(kind):
    error = kind(Path("state/file.sqlite"), "it is damaged")
    assert named(error) == {"error": kind.__name__, "detail": str(error)}
    assert as_refusal(error) == (Code.UNAVAILABLE, str(error))


def test_an_error_that_may_quote_a_row_is_named_by_its_type_and_place():
    with pytest.raises(ValueError, match="a patient's name") as caught:
        int("a patient's name")
    fields = named(caught.value)
    assert fields.keys() == {"error", "place"}
    assert "a patient's name" not in str(fields)
