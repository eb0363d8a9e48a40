"""The codec: no field is forgotten, on either side, and no value of another type travels."""

import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass, make_dataclass
from enum import Enum
from fractions import Fraction
from typing import Annotated

import pytest

import wire
from dpcore.records.held_back import Part
from rado.v1 import cohort_pb2, query_pb2, roster_pb2
from wire.codec import Codec, Travels, Wire, codec
from wire.errors import Code, WireError
from wire.roster import Role
from wire.statements import LedgerHead


def wires() -> list[type]:
    """All dataclasses that travel."""
    for module in pkgutil.iter_modules(wire.__path__, "wire."):
        importlib.import_module(module.name)
    importlib.import_module("radofed.joining.requests")

    def below(cls: type) -> Iterator[type]:
        for each in cls.__subclasses__():
            # Others are generic: they name no message.
            if not each.__parameters__ and each.__module__ != __name__:
                yield each
            yield from below(each)

    return list(below(Wire))


@pytest.mark.parametrize("cls", wires(), ids=lambda cls: cls.__name__)
def test_each_field_has_its_counterpart(cls):
    assert codec(cls).message.DESCRIPTOR.full_name.startswith("rado.v1.")


def test_all_messages_that_are_signed_are_made_by_the_codec():
    """But for an admission, which the operator's command writes."""
    from wire.envelopes import MessageType, Signable

    kinds = {cls.KIND for cls in wires() if issubclass(cls, Signable)}
    assert set(MessageType) - kinds == {MessageType.QUERY, MessageType.ADMISSION}


class Half(Enum):
    PARTY = 1


def fields_of_ready(**changes):
    return {"query_id": bytes, "attempt": int, "party": str} | changes


NOT_HELD_BACK = Travels(by_hand=tuple(each.name for each in query_pb2.Query.DESCRIPTOR.fields if each.number != 27))


@pytest.mark.parametrize(
    ("message", "types"),
    [
        (cohort_pb2.Ready, {"query_id": bytes, "attempt": int}),
        (cohort_pb2.Ready, fields_of_ready(more=int)),
        (cohort_pb2.Ready, fields_of_ready(query_id=str)),
        (cohort_pb2.Ready, fields_of_ready(attempt=bool)),
        (cohort_pb2.Ready, fields_of_ready(party=LedgerHead)),
        (cohort_pb2.Ready, fields_of_ready(attempt=int | None)),
        (cohort_pb2.Ready, fields_of_ready(attempt=tuple[int, ...])),
        (cohort_pb2.Ready, fields_of_ready(again=Annotated[str, Travels("party")])),
        (query_pb2.Operands, {"places": int}),
        (cohort_pb2.Cohort, {"query_id": bytes, "attempt": int, "acceptances": tuple[LedgerHead, ...]}),
        (query_pb2.Binding, {"opening_key": bytes, "seeds": tuple[tuple[str, int], ...], "commitment": bytes}),
        (query_pb2.Binding, {"opening_key": bytes, "seeds": tuple[tuple[str], ...], "commitment": bytes}),
        (query_pb2.LaplaceShare, {"scale": float, "shares": int}),
        (query_pb2.Query, {"held_back": tuple[Fraction, Part] | None, "rest": Annotated[int, NOT_HELD_BACK]}),
        (
            roster_pb2.Member,
            {
                "role": Role,
                "name": str,
                "signing_key": bytes,
                "certificate_san": str,
                "rows_at_least": int,
                "tls_key_hash": bytes,
            },
        ),
        (query_pb2.HeldBack, {"share": Fraction, "part": Half}),
    ],
)
def test_fields_without_a_counterpart_are_refused(message, types):
    with pytest.raises(TypeError):
        Codec(make_dataclass("Given", types.items(), frozen=True), message)


@dataclass(frozen=True)
class One:
    first: int


@dataclass(frozen=True)
class PointMass:
    coordinate: int
    at: int


@pytest.mark.parametrize("union", [One | PointMass, PointMass])
def test_a_oneof_has_exactly_the_classes_of_its_cases(union):
    given = make_dataclass("Given", {"function": union, "centre": int, "halvings": int}.items(), frozen=True)
    with pytest.raises(TypeError, match="cases"):
        Codec(given, query_pb2.MapTerm)


def test_a_wire_names_its_message():
    class Nameless(Wire):
        pass

    with pytest.raises(TypeError, match="names no message"):
        codec(Nameless)


def test_an_unknown_number_is_refused_in_the_words_of_its_field():
    travels = Travels(unknown="No such role.", code=Code.QUERY_INVALID)
    given = make_dataclass("Given", {"role": Annotated[Role, travels], "rest": Annotated[int, OTHERS]}.items())
    of_role = Codec(given, roster_pb2.Member)
    assert of_role.read(roster_pb2.Member(role=2), rest=0).role is Role.COORDINATOR
    with pytest.raises(WireError) as caught:
        of_role.read(roster_pb2.Member(role=9), rest=0)
    assert (caught.value.code, caught.value.detail) == (Code.QUERY_INVALID, "No such role.")


OTHERS = Travels(by_hand=("name", "signing_key", "certificate_san", "rows_at_least", "tls_key_hash"))
