"""Strategies of inputs that are nearly valid: a seed, and a few changes that a hostile peer or a disk would make."""

import copy
import json
import re
from collections.abc import Sequence
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from hypothesis import strategies as st

EDGES = (0, 1, 2, 3, 7, 8, 16, 63, 64, 100, 255, 256, 512, 1000, 1 << 16, 1 << 31, 1 << 32, 1 << 48, 1 << 53, 1 << 63)
WORDS = (
    "", " ", "0", "1", "-1", "1/2", "1/0", "0.5", "1e-6", "1e999999999", "1e\u0663\u0663\u0663\u0663\u0663\u0663",
    "9" * 30, "9" * 5000, "0x" + "f" * 40, "nan", "inf", "-inf", "NaN", "Infinity", "true", "null", "\0", "\ud7ff",
    "\u2028", "\ufeff", "\U0001f600", "\u0661", "a" * 300, "bias", "bias=1", "ann", "lea", "1" * 20, "[", "]", "{", "}",
    "(", ")", '"', "'", '"""', "\\", "\\u0000", "\\ud800", "\n", "\r\n", "\t", ",", ";", "=", ".", "..", "/", "~", "&",
    "|", "#", "~root/x", "[[a]]", "[a.b]", "a.b.c=1", "-0.0", "1_000", "1e308", "5e-324", "18446744073709551616",
)  # fmt: skip
_OCTETS = (b"\0", b"\xff", b"\x80", b"\n", b"-", b"\xff\xff\xff\xff", b"\xff" * 8 + b"\x01", b"\x7f" * 16)
_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|\w+|\s+|.', re.DOTALL)
_UNKNOWN = b"\xf8\x7f\x01"  # field 2047, which no message has

_RANGES = {
    FieldDescriptor.TYPE_INT32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.TYPE_SINT32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.TYPE_UINT32: (0, (1 << 32) - 1),
    FieldDescriptor.TYPE_ENUM: (-1, 9),
    FieldDescriptor.TYPE_INT64: (-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.TYPE_SINT64: (-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.TYPE_UINT64: (0, (1 << 64) - 1),
}


def integers(least: int, most: int) -> st.SearchStrategy[int]:
    """Integers of a type, half of them at or beside an edge."""
    edges = {near for edge in EDGES for near in (edge - 1, edge, edge + 1, -edge)} | {least, most}
    return st.sampled_from(sorted(edge for edge in edges if least <= edge <= most)) | st.integers(least, most)


def texts() -> st.SearchStrategy[str]:
    """Texts that parsers have stumbled over, and any others."""
    return st.sampled_from(WORDS) | st.text(max_size=12)


@st.composite
def octets_near(draw: Any, seeds: Sequence[bytes], most: int = 3) -> bytes:
    """A seed with up to `most` edits of its bytes; sometimes any bytes at all."""
    if draw(st.integers(0, 15)) == 15:
        return draw(st.binary(max_size=64))
    return _edited_octets(draw, draw(st.sampled_from(seeds)), most)


def _edited_octets(draw: Any, data: bytes, most: int) -> bytes:
    for _ in range(draw(st.integers(0, most))):
        start = draw(st.integers(0, len(data)))
        stop = min(len(data), start + draw(st.sampled_from((0, 1, 1, 2, 4, 8, 32, 1 << 20))))
        match draw(st.integers(0, 3)):
            case 0:
                data = data[:start] + data[stop:]
            case 1:
                data = data[:start] + draw(st.sampled_from(_OCTETS) | st.binary(max_size=8)) + data[stop:]
            case 2:
                data = data[:start] + data[start:stop] * draw(st.sampled_from((2, 3, 20))) + data[stop:]
            case _:
                other = draw(st.integers(0, len(data)))
                data = data[:start] + data[other : other + 16] + data[stop:]
    return data


@st.composite
def texts_near(draw: Any, seeds: Sequence[str], words: Sequence[str] = ()) -> bytes:
    """A seed with up to four edits of its tokens, as UTF-8; sometimes then of its bytes."""
    tokens = _TOKEN.findall(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(tokens)))
        stop = min(len(tokens), start + draw(st.sampled_from((0, 1, 1, 1, 2, 5))))
        match draw(st.integers(0, 3)):
            case 0:
                tokens[start:stop] = []
            case 1:
                tokens[start:stop] = [draw(st.sampled_from((*words, *WORDS)) | st.text(max_size=6))]
            case 2:
                tokens[start:stop] = tokens[start:stop] * draw(st.sampled_from((2, 3, 200)))
            case _:
                other = draw(st.integers(0, len(tokens)))
                tokens[start:stop] = tokens[other : other + draw(st.integers(1, 12))]
    data = "".join(tokens).encode()
    return _edited_octets(draw, data, 2) if draw(st.integers(0, 7)) == 7 else data


@st.composite
def messages_near(draw: Any, seeds: Sequence[Message]) -> bytes:
    """A serialised seed with up to four edits of its fields, at any depth; sometimes then of its bytes."""
    message = copy.deepcopy(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(0, 4))):
        _edit_message(draw, message, seeds)
    data = message.SerializeToString(deterministic=True)
    return _edited_octets(draw, data, 2) if draw(st.integers(0, 7)) == 7 else data


def _parts(message: Message) -> list[Message]:
    """The message and all messages inside it."""
    found = [message]
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in value if field.is_repeated else (value,):
                found += _parts(part)
    return found


def _edit_message(draw: Any, message: Message, seeds: Sequence[Message]) -> None:
    part = draw(st.sampled_from(_parts(message)))
    if not part.DESCRIPTOR.fields or draw(st.integers(0, 19)) == 19:
        part.MergeFromString(_UNKNOWN)
        return
    field = draw(st.sampled_from(list(part.DESCRIPTOR.fields)))
    if draw(st.integers(0, 5)) == 5:
        part.ClearField(field.name)
    elif field.is_repeated:
        _edit_list(draw, getattr(part, field.name), field, seeds)
    elif field.message_type is not None:
        getattr(part, field.name).CopyFrom(_some(draw, field, seeds))
    else:
        setattr(part, field.name, draw(_scalars(field)))


def _edit_list(draw: Any, values: Any, field: Any, seeds: Sequence[Message]) -> None:
    place = draw(st.integers(0, max(0, len(values) - 1)))
    if values and draw(st.booleans()):
        del values[place]
    elif values and draw(st.booleans()):
        times = draw(st.sampled_from((1, 2, 40)))
        values.extend([copy.deepcopy(values[place]) for _ in range(times)])
    elif field.message_type is not None:
        values.append(_some(draw, field, seeds))
    else:
        values.insert(place, draw(_scalars(field)))


def _some(draw: Any, field: Any, seeds: Sequence[Message]) -> Message:
    """A message of the field's type: one of the seeds', or an empty one."""
    known = [part for seed in seeds for part in _parts(seed) if part.DESCRIPTOR is field.message_type]
    if known and draw(st.integers(0, 3)):
        return draw(st.sampled_from(known))
    from google.protobuf.message_factory import GetMessageClass

    return GetMessageClass(field.message_type)()


def _scalars(field: Any) -> st.SearchStrategy[Any]:
    if field.type in _RANGES:
        return integers(*_RANGES[field.type])
    if field.type == FieldDescriptor.TYPE_BOOL:
        return st.booleans()
    if field.type == FieldDescriptor.TYPE_STRING:
        return texts()
    lengths = st.sampled_from((0, 1, 16, 31, 32, 33, 64, 65, 200))
    return lengths.map(bytes) | st.sampled_from([value * 32 for value in (b"\1", b"\xff")]) | st.binary(max_size=40)


_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    integers(-(1 << 70), 1 << 70),
    st.floats(),
    texts(),
    st.sampled_from([[], {}, [[]], [None], {"": None}, [[[[[]]]]], ["a", "a"], 10**400]),
)


@st.composite
def json_near(draw: Any, seeds: Sequence[Any]) -> Any:
    """The object of a seed with up to four edits of its values, at any depth."""
    root = [copy.deepcopy(draw(st.sampled_from(seeds)))]
    for _ in range(draw(st.integers(0, 4))):
        _edit_object(draw, root)
    return root[0]


def _edit_object(draw: Any, root: list[Any]) -> None:
    holder, key = draw(st.sampled_from(list(_places(root))))
    match draw(st.integers(0, 4)):
        case 0 if holder is not root:
            del holder[key]
        case 1 if isinstance(holder[key], list) and holder[key]:
            holder[key] *= draw(st.sampled_from((2, 30)))
        case 2 if isinstance(holder[key], dict):
            holder[key][draw(texts())] = copy.deepcopy(draw(_VALUES))
        case 3:
            other, place = draw(st.sampled_from(list(_places(root))))
            holder[key] = copy.deepcopy(other[place])
        case _:
            holder[key] = copy.deepcopy(draw(_VALUES))


def _places(holder: Any) -> Any:
    for key in list(holder) if isinstance(holder, dict) else range(len(holder)):
        yield holder, key
        if isinstance(holder[key], dict | list):
            yield from _places(holder[key])


def json_octets(seeds: Sequence[Any]) -> st.SearchStrategy[bytes]:
    """A seed's JSON text: its values edited, or its tokens."""
    plain = [json.dumps(seed) for seed in seeds]
    return json_near(seeds).map(lambda value: json.dumps(value).encode()) | texts_near(plain)
