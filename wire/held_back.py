"""The part of the rows that a query is about, as a message."""

from dpcore.errors import PlanError
from dpcore.records.held_back import HeldBack, Part
from rado.v1 import query_pb2
from wire.errors import Code, WireError
from wire.rationals import rational_from_proto, rational_to_proto

_NUMBERS = {Part.TRAINING: query_pb2.PART_TRAINING, Part.HELD_BACK: query_pb2.PART_HELD_BACK}
_PARTS = {number: part for part, number in _NUMBERS.items()}


def held_back_to_proto(held_back: HeldBack) -> query_pb2.HeldBack:
    """The message that travels in a query."""
    return query_pb2.HeldBack(share=rational_to_proto(held_back.share), part=_NUMBERS[held_back.part])


def held_back_from_proto(message: query_pb2.HeldBack) -> HeldBack:
    """Raises WireError(QUERY_INVALID) if the share is not between 0 and 1 or the part is unknown."""
    part = _PARTS.get(message.part)
    if part is None:
        raise WireError(Code.QUERY_INVALID, "This version does not know the part of the rows.")
    try:
        return HeldBack(rational_from_proto(message.share), part)
    except PlanError as error:
        raise WireError(Code.QUERY_INVALID, str(error)) from error
