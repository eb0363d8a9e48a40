"""What a query states of its study: its rules, its digest, its days, and hostile texts."""

from dataclasses import replace
from datetime import UTC, date, datetime

import pytest

from rado.v1 import query_pb2
from tests.federation.party import World
from tests.wire.every_query import STUDY
from wire.errors import Code, WireError
from wire.features import Feature
from wire.query_summary import QuerySummary, signed_lines, signed_parts, with_purpose
from wire.study import MAX_PROTOCOL_NUMBER, TEXTS, Study, study_lines

HOSTILE = "<script>alert(\"1\")</script> & '2' {{ 3 }}"
WITH_STUDY = {"study": STUDY, "features": (Feature.BASE.value, Feature.STUDY.value)}


@pytest.fixture
def plain(secret_key):
    return World(secret_key).query()


def refused(make, detail: str, code: Code = Code.QUERY_INVALID) -> None:
    with pytest.raises(WireError, match=detail) as caught:
        make()
    assert caught.value.code is code


@pytest.mark.parametrize("name", TEXTS)
def test_each_text_is_one_line_that_people_can_see(name):
    most = MAX_PROTOCOL_NUMBER if name == "protocol_number" else 200
    assert getattr(replace(STUDY, **{name: "\u7814" * most}), name) == "\u7814" * most
    odd = ("", " 17", "17 ", "a\nb", "a\x1b[2Jb", "a\u202eb", "a\u00a0b", "a\ud800", "x" * (most + 1), "x" * 10**6)
    for text in odd:
        refused(lambda text=text: replace(STUDY, **{name: text}), f"{name} of a study has 1 to {most} printable")


def test_days_are_written_in_one_way():
    """Two ways to write a day would be two digests of one study."""
    message = STUDY.to_proto()
    assert (message.begins, message.ends) == ("2026-01-01", "2099-12-31")
    for text in ("20260101", "2026-1-1", "2026-W01-1", "2026-02-30", "2026-01-01T00:00", "", "\u0662026-01-01"):
        other = query_pb2.Study()
        other.CopyFrom(message)
        other.begins = text
        refused(lambda other=other: Study.from_proto(other), "dates, such as 2026-11-01")


def test_a_study_ends_no_day_before_it_begins():
    assert replace(STUDY, ends=STUDY.begins).days == "2026-01-01 to 2026-01-01"
    refused(lambda: replace(STUDY, ends=date(2025, 12, 31)), "not before its first")


def test_a_study_is_open_on_both_of_its_days_in_utc():
    study = replace(STUDY, begins=date(2026, 11, 1), ends=date(2026, 11, 30))

    def at(*moment: int) -> float:
        return datetime(*moment, tzinfo=UTC).timestamp()

    for open_at in (at(2026, 11, 1), at(2026, 11, 30, 23, 59, 59)):
        study.check_day(open_at)
    refused(lambda: study.check_day(at(2026, 10, 31, 23, 59, 59)), "begins on 2026-11-01", Code.STUDY_DATES)
    refused(lambda: study.check_day(at(2026, 12, 1)), "ended on 2026-11-30", Code.STUDY_DATES)
    assert not study.ends_before(at(2026, 11, 30, 23, 59, 59))
    assert study.ends_before(at(2026, 12, 1))


def test_whatever_is_changed_makes_another_digest():
    others = [replace(STUDY, **{name: "x"}) for name in TEXTS]
    others += [replace(STUDY, begins=date(2026, 1, 2)), replace(STUDY, ends=date(2099, 12, 30))]
    # The length of each text counts: what moves from one to the next is another study.
    others += [replace(STUDY, purpose="ab", protocol_number="c"), replace(STUDY, purpose="a", protocol_number="bc")]
    assert len({each.digest for each in (STUDY, *others)}) == len(others) + 1
    assert Study.from_bytes(STUDY.to_bytes()) == STUDY


def test_a_query_has_a_study_if_and_only_if_it_names_the_feature(plain):
    query = replace(plain, **WITH_STUDY)
    assert (query.study, query.study_digest, plain.study_digest) == (STUDY, STUDY.digest, None)
    assert type(query).from_bytes(query.to_bytes()) == query
    refused(lambda: replace(query, study=None), "a study has its feature")
    refused(lambda: replace(query, features=(Feature.BASE.value,)), "a study has its feature")


def test_people_see_every_field_in_quotation_marks(plain):
    hostile = replace(STUDY, **dict.fromkeys(TEXTS, HOSTILE))
    query = replace(plain, **{**WITH_STUDY, "study": hostile})
    quoted = '"' + HOSTILE.replace('"', '\\"') + '"'
    lines = QuerySummary.of(query).lines()
    for name in ("protocol number", "purpose", "organisation", "person in charge"):
        assert f"  {name}: {quoted}" in lines
    assert {"  days (UTC): 2026-01-01 to 2099-12-31", f"  digest: {hostile.digest.hex()}"} <= set(lines)
    assert QuerySummary.of(query).to_dict()["study"] == hostile.to_dict()
    assert with_purpose("moments", "", hostile) == f"moments; study: {quoted}, {quoted}"
    signed = "\n".join(signed_lines(signed_parts(query.to_bytes())))
    for name in TEXTS:
        assert f"study.{name}: {quoted}" in signed
    assert "the study's budget at a party goes by it" in signed
    assert study_lines(None) == ["study: none is named"]
    assert "study: none is named" in QuerySummary.of(plain).lines()
