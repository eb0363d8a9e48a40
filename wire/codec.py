"""The codec: both directions between a dataclass and its message follow from the dataclass's fields and their types.

A field travels in the message's field of the same name. Its type says how:

    int, str, bytes, bool             as it is
    X | None                          absent for None
    tuple[X, ...], frozenset[X]       repeated; a set in ascending order
    an Enum                           by its name, with the message's prefix; of a text, by its value
    Fraction                          a Rational
    a Wire, another dataclass         the message inside; tuple[X, Y] too, field by field
    a union of dataclasses            a oneof of the same name: each class by its name in snake case

`Travels` in an Annotated type says what is otherwise. Each field of either side must have its counterpart: `codec`
raises TypeError otherwise, and a test asks for the codec of every Wire. Values are checked where they are made: by the
dataclass. What it refuses of a value of dpcore, a part of a query, is QUERY_INVALID here.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from fractions import Fraction
from functools import partial
from operator import attrgetter
from types import UnionType
from typing import Annotated, Any, Generic, Self, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet

from dpcore.errors import ConfigurationError, RadofedError
from rado.v1 import query_pb2
from wire.errors import Code, WireError

M = TypeVar("M", bound=Message)

_Convert = Callable[[Any], Any]

_SCALARS: dict[int, type] = {
    FieldDescriptor.TYPE_BOOL: bool,
    FieldDescriptor.TYPE_BYTES: bytes,
    FieldDescriptor.TYPE_STRING: str,
    FieldDescriptor.TYPE_INT64: int,
    FieldDescriptor.TYPE_SINT64: int,
    FieldDescriptor.TYPE_UINT32: int,
    FieldDescriptor.TYPE_UINT64: int,
}


@dataclass(frozen=True)
class Travels:
    """How a field travels, where its name and type do not say it."""

    name: str = ""
    """The message's field, if it has another name."""
    write: _Convert | None = None
    read: _Convert | None = None
    by_hand: tuple[str, ...] = ()
    """Fields of the message that the class itself writes and reads, instead of the codec."""
    unknown: str = "This version does not know a value."
    """Detail of the refusal of an enum's number, or of a oneof's case, that this version does not know."""
    code: Code = Code.MESSAGE_MALFORMED
    """Code of that refusal."""


class Wire(Generic[M]):
    """A dataclass that travels as the message `M`, its type argument."""

    def to_proto(self) -> M:
        """The message that travels."""
        return cast("M", codec(type(self)).write(self))

    @classmethod
    def from_proto(cls, message: M) -> Self:
        """Raises WireError."""
        return cast("Self", codec(cls).read(message))

    def to_bytes(self) -> bytes:
        """The message as bytes, such as the payload to be signed. Equal values have equal bytes."""
        return self.to_proto().SerializeToString(deterministic=True)

    @classmethod
    def from_bytes(cls, payload: bytes) -> Self:
        """The inverse of to_bytes. Raises WireError, also for a field that this version does not know."""
        return cls.from_proto(cast("M", parse(codec(cls).message, payload)))


class Codec:
    """Writes a dataclass as its message, and reads it. Raises TypeError if a field has no counterpart."""

    write: Callable[[Any], Any]
    """The message of a value."""
    read: Callable[..., Any]
    """The value of a message; by name, the fields that the class reads itself. Raises WireError."""

    def __init__(self, cls: type, message: type[Message], inherited: Travels | None = None) -> None:
        """inherited: of the field that holds such values, for its refusals."""
        self.cls, self.message = cls, message
        # Fields with a field of the message each, and of those the ones that do not travel as they are.
        self._pairs: list[tuple[str, str]] = []
        self._writes: list[tuple[str, _Convert]] = []
        self._reads: list[tuple[str, _Convert]] = []
        self._optional: list[tuple[str, str, _Convert | None]] = []
        self._oneofs: list[tuple[str, _Cases]] = []
        left = {field.name for field in _descriptor(message).fields}
        hints = get_type_hints(cls, include_extras=True)
        for field in fields(cls):
            hint, travels = _annotation(hints[field.name], inherited or Travels())
            used = set(travels.by_hand) or self._add(field.name, hint, travels)
            if not used <= left:
                raise TypeError(f"{cls.__name__}.{field.name} has no field of its own in {message.DESCRIPTOR.name}")
            left -= used
        if left:
            raise TypeError(f"{cls.__name__} lacks {', '.join(sorted(left))} of {message.DESCRIPTOR.name}")
        self.write, self.read = self._writer(), self._reader()

    def _writer(self) -> Callable[[Any], Any]:
        message, writes, oneofs = self.message, self._writes, self._oneofs
        names, of_value = [name for _, name in self._pairs], _all_of([own for own, _ in self._pairs])

        def write(value: Any) -> Any:
            found = dict(zip(names, of_value(value)))  # noqa: B905  (as many; strict takes as long as a field)
            for name, convert in writes:
                found[name] = convert(found[name])
            for own, cases in oneofs:
                found.update(cases.write(getattr(value, own)))
            return message(**found)

        return write

    def _reader(self) -> Callable[..., Any]:
        value: Callable[..., Any] = self.cls if issubclass(self.cls, Wire) else partial(_made, self.cls)
        reads, optional, oneofs = self._reads, self._optional, self._oneofs
        own_names, of_message = [own for own, _ in self._pairs], _all_of([name for _, name in self._pairs])

        def read(message: Any, **by_hand: Any) -> Any:
            found = dict(zip(own_names, of_message(message)), **by_hand)  # noqa: B905
            for own, convert in reads:
                found[own] = convert(found[own])
            for own, name, convert_it in optional:
                if not message.HasField(name):
                    found[own] = None
                elif convert_it is not None:
                    found[own] = convert_it(found[own])
            for own, cases in oneofs:
                found[own] = cases.read(message)
            return value(**found)

        return read

    def _add(self, own: str, hint: Any, travels: Travels) -> set[str]:
        """Add both directions of a field. Returns the message's fields that it takes."""
        name = travels.name or own
        if name in _descriptor(self.message).oneofs_by_name:
            cases = _Cases(hint, self.message, name, travels)
            self._oneofs.append((own, cases))
            return set(cases.names)
        described = _descriptor(self.message).fields_by_name.get(name)
        if described is None:
            raise TypeError(f"{self.message.DESCRIPTOR.name} has no {name}, as {self.cls.__name__} has")
        optional, hint = _optional(hint)
        # A message inside may be required: then an empty one is read where it is absent.
        if described.has_presence != optional and (optional or described.message_type is None):
            raise TypeError(f"{self.cls.__name__}.{own} may be None exactly if {name} may be absent")
        write, read = _converters(hint, described, travels)
        self._pairs.append((own, name))
        if write is not None:
            self._writes.append((name, _unless_none(write) if optional else write))
        if optional:
            self._optional.append((own, name, read))
        elif read is not None:
            self._reads.append((own, read))
        return {name}


def codec(cls: type[Wire[Any]]) -> Codec:
    """The codec of a Wire, made where it is first needed: its fields' types are known by then."""
    found = _CODECS.get(cls)
    if found is None:
        found = _CODECS[cls] = Codec(cls, _message_of(cls))
    return found


_CODECS: dict[Any, Codec] = {}


def _message_of(cls: type) -> type[Message]:
    """The message that a Wire names. Raises TypeError if it names none."""
    for base in cls.__mro__:
        for parent in getattr(base, "__orig_bases__", ()):
            named = [each for each in get_args(parent) if isinstance(each, type) and issubclass(each, Message)]
            if named:
                return named[0]
    raise TypeError(f"{cls.__name__} names no message")


class _Cases:
    """A oneof: each class of a union is the case of its name."""

    def __init__(self, hint: Any, message: type[Message], oneof: str, travels: Travels) -> None:
        described = {each.name: each for each in _descriptor(message).oneofs_by_name[oneof].fields}
        classes = {_snake(cls.__name__): cls for cls in get_args(hint)}
        if set(classes) != set(described):
            raise TypeError(f"the cases of {oneof} are {sorted(described)}, the classes {sorted(classes)}")
        self.names, self._oneof, self._travels = tuple(classes), oneof, travels
        self._name_of = {cls: name for name, cls in classes.items()}
        self._convert = {name: _case(cls, described[name], travels) for name, cls in classes.items()}

    def write(self, value: Any) -> dict[str, Any]:
        name = self._name_of[type(value)]
        return {name: self._convert[name][0](value)}

    def read(self, message: Message) -> Any:
        name = message.WhichOneof(self._oneof)
        if name is None:
            raise WireError(self._travels.code, self._travels.unknown)
        return self._convert[name][1](getattr(message, name))


def _case(cls: type, described: FieldDescriptor, travels: Travels) -> tuple[_Convert, _Convert]:
    if described.message_type is not None:
        inner = Codec(cls, _class_of(described), travels)
        return inner.write, inner.read
    # One number: the only field of its class.
    (only,) = fields(cls)
    return attrgetter(only.name), lambda number: _made(cls, **{only.name: number})


def _made(cls: type, /, **found: Any) -> Any:
    """A value of dpcore. What it refuses is a query's fault."""
    try:
        return cls(**found)
    except (RadofedError, ValueError) as error:
        raise WireError(Code.QUERY_INVALID, str(error)) from error


def _annotation(hint: Any, inherited: Travels) -> tuple[Any, Travels]:
    """A field's type, and how it travels."""
    if get_origin(hint) is Annotated:
        said = next((each for each in hint.__metadata__ if isinstance(each, Travels)), None)
        return hint.__origin__, said or Travels(unknown=inherited.unknown, code=inherited.code)
    return hint, Travels(unknown=inherited.unknown, code=inherited.code)


def _optional(hint: Any) -> tuple[bool, Any]:
    """Whether a type has None, and the type without it."""
    if get_origin(hint) not in (Union, UnionType) or type(None) not in get_args(hint):
        return False, hint
    (rest,) = [each for each in get_args(hint) if each is not type(None)]
    return True, rest


def _converters(hint: Any, described: FieldDescriptor, travels: Travels) -> tuple[_Convert | None, _Convert | None]:
    """What writes a value of this type, and what reads it; None for a value that travels as it is."""
    if travels.write is not None or travels.read is not None:
        return travels.write, travels.read
    origin, arguments = get_origin(hint), get_args(hint)
    is_many = origin is frozenset or (origin is tuple and arguments[-1] is ...)
    if is_many != described.is_repeated:
        raise TypeError(f"{described.full_name} is repeated exactly if its field is a tuple or a set, not {hint}")
    if not is_many:
        return _one(hint, described, travels)
    write, read = _one(arguments[0], described, travels)
    order: _Convert = sorted if origin is frozenset else list
    return (
        order if write is None else lambda values: [write(each) for each in order(values)],
        origin if read is None else lambda values: origin(map(read, values)),
    )


def _one(hint: Any, described: FieldDescriptor, travels: Travels) -> tuple[_Convert | None, _Convert | None]:
    """As `_converters`, for a field that is not repeated, or for an entry."""
    if hint is Fraction and described.message_type is not None:
        return rational_to_proto, rational_from_proto
    if get_origin(hint) is tuple and described.message_type is not None:
        return _pair(get_args(hint), _class_of(described), travels)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _enum(hint, described, travels)
    if isinstance(hint, type) and issubclass(hint, Wire):
        inner = codec(hint)
        if described.message_type is None or inner.message.DESCRIPTOR.full_name != described.message_type.full_name:
            raise TypeError(f"{described.full_name} is not the message of a {hint.__name__}")
        # What a class has of its own comes before the codec.
        write = inner.write if hint.to_proto is Wire.to_proto else hint.to_proto
        is_derived = cast("Any", hint.from_proto).__func__ is cast("Any", Wire.from_proto).__func__
        return write, inner.read if is_derived else hint.from_proto
    if is_dataclass(hint) and described.message_type is not None:
        inner = Codec(cast("type", hint), _class_of(described), travels)
        return inner.write, inner.read
    if _SCALARS.get(described.type) is hint:
        return None, None
    raise TypeError(f"{described.full_name} does not hold a value of type {hint}")


def _pair(hints: tuple[Any, ...], message: type[Message], travels: Travels) -> tuple[_Convert, _Convert]:
    """A tuple whose values are a message's fields, in their order. They travel as they are."""
    described = list(_descriptor(message).fields)
    if len(hints) != len(described) or any(
        _one(h, d, travels) != (None, None) for h, d in zip(hints, described, strict=True)
    ):
        raise TypeError(f"{message.DESCRIPTOR.name} does not have the fields of {hints}")
    names = [each.name for each in described]
    return lambda values: message(**dict(zip(names, values, strict=True))), attrgetter(*names)


def _enum(hint: type[Enum], described: FieldDescriptor, travels: Travels) -> tuple[_Convert, _Convert]:
    numbers: dict[Enum, Any]
    if described.enum_type is None:
        numbers = {each: each.value for each in hint}
    else:
        prefix = _snake(described.enum_type.name).upper()
        named = {each.name: each.number for each in described.enum_type.values if each.number}
        if set(named) != {f"{prefix}_{each.name}" for each in hint}:
            raise TypeError(f"{hint.__name__} has not the names of {described.enum_type.name}")
        numbers = {each: named[f"{prefix}_{each.name}"] for each in hint}
    known = {number: each for each, number in numbers.items()}

    def read(number: Any) -> Enum:
        found = known.get(number)
        if found is None:
            raise WireError(travels.code, travels.unknown)
        return found

    return numbers.__getitem__, read


def _unless_none(convert: _Convert) -> _Convert:
    """None is absent from a message that is made of it."""
    return lambda value: None if value is None else convert(value)


def _all_of(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """What reads attributes of these names. One loop in C: by itself it gives no tuple of fewer than two."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda it: tuple(getattr(it, name) for name in names)


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def _descriptor(message: type[Message]) -> Descriptor:
    return cast("Descriptor", message.DESCRIPTOR)


def _class_of(described: FieldDescriptor) -> type[Message]:
    assert described.message_type is not None, "only of a message"
    return GetMessageClass(described.message_type)


def rational_to_proto(value: Fraction) -> query_pb2.Rational:
    """Raises ConfigurationError if the numerator or denominator has more than 63 bits."""
    if max(abs(value.numerator), value.denominator) >= 1 << 63:
        raise ConfigurationError(f"{float(value)} needs more than 63 bits as a fraction; give fewer digits")
    return query_pb2.Rational(numerator=value.numerator, denominator=value.denominator)


def rational_from_proto(message: query_pb2.Rational) -> Fraction:
    """Raises WireError(QUERY_INVALID) if it is not in lowest terms with a positive denominator."""
    if message.denominator < 1:
        raise WireError(Code.QUERY_INVALID, "A rational's denominator must be positive.")
    value = Fraction(message.numerator, message.denominator)
    if value.denominator != message.denominator:
        raise WireError(Code.QUERY_INVALID, "A rational must be in lowest terms.")
    return value


def parse(message_type: type[M], data: bytes) -> M:
    """Parse bytes strictly. Raises WireError(MESSAGE_MALFORMED or FIELD_UNKNOWN)."""
    try:
        message = message_type.FromString(data)
    except (DecodeError, ValueError, RuntimeError) as error:
        raise WireError(Code.MESSAGE_MALFORMED, f"It does not parse as {message_type.DESCRIPTOR.name}.") from error
    refuse_unknown_fields(message)
    return message


def refuse_unknown_fields(message: Message) -> None:
    """Raise WireError(FIELD_UNKNOWN) if the message, or one inside it, has a field that this version does not know.

    An old node must not understand only part of a new query.
    """
    if len(UnknownFieldSet(message)):
        raise WireError(Code.FIELD_UNKNOWN, f"The field is in {message.DESCRIPTOR.name}.")
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        for part in value if field.is_repeated else (value,):
            refuse_unknown_fields(part)
