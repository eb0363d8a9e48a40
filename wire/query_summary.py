"""What a query asks, for people: computed from the signed query alone, never from anybody's rows."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, cast

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from dpcore.predicates.expressions import (
    Above,
    And,
    AtLeast,
    Clipped,
    CountDeviance,
    CountGain,
    Equals,
    Flag,
    FormCoordinates,
    LabelError,
    LabelExposure,
    NonNegative,
    Not,
    Or,
    Predicate,
)
from dpcore.predicates.notation import described
from dpcore.predicates.ranges import readable
from dpcore.queries.gradient import THETA_BITS, GradientQuery
from dpcore.queries.statistic import StatisticQuery
from dpcore.records.clipping import BASIS_BITS
from dpcore.records.feature_map import FeatureMap
from dpcore.records.features import Classes, Label, plain
from dpcore.records.schema import Schema
from rado.v1 import envelope_pb2, query_pb2
from radobase.printing import amount, duration, json_text, local_time
from wire.codec import parse
from wire.query import Query
from wire.query_kinds import read_nodes
from wire.study import Study, study_lines


@dataclass(frozen=True)
class QuerySummary:
    """What a query asks. Times are Unix seconds."""

    learner: str
    kind: str
    words: str
    """In one sentence."""
    columns: tuple[str, ...]
    """Source columns that an answer depends on."""
    predicates: tuple[str, ...]
    """In the order of the sums: ranges in the column's units (dpcore.predicates.ranges), others in their notation."""
    values: int
    """How many numbers the total has."""
    cohort_min: int
    honest_parties: int
    max_rows: int
    max_attempts: int
    delta: float
    """At which epsilon is counted."""
    created_at_unix_s: int
    not_after_unix_s: int
    answer_within_s: int
    bounds: tuple[str, ...] = ()
    """The schema's bounds of those columns that are numbers: a number beyond counts as if it were at the bound."""
    purpose: str = ""
    """What the learner says that the answer is for; empty if it says nothing."""
    epoch: str = ""
    """The epoch of the rows that it is about; empty for all rows."""
    training: str = ""
    """The training that it is a round of, in words; empty without one."""
    study: Study | None = None
    """The study that the learner states; None without one."""

    @classmethod
    def of(cls, query: Query) -> "QuerySummary":
        """What a valid query asks."""
        statistic = query.kind if isinstance(query.kind, StatisticQuery) else None
        read = columns(query.schema) if statistic is None else _columns_of(statistic)
        return cls(
            learner=query.learner,
            kind=query.kind.name,
            words=query.words,
            columns=read,
            predicates=() if statistic is None else _predicates_of(statistic),
            values=query.length,
            cohort_min=query.cohort_min,
            honest_parties=query.honest_parties,
            max_rows=query.max_rows,
            max_attempts=query.max_attempts,
            delta=float(query.delta),
            created_at_unix_s=query.created_at_unix_s,
            not_after_unix_s=query.not_after_unix_s,
            answer_within_s=query.answer_within_s,
            bounds=_bounds(query.schema, read),
            purpose=query.purpose,
            epoch=query.epoch or "",
            training="" if query.training is None else query.training.words,
            study=query.study,
        )

    def to_dict(self) -> dict[str, Any]:
        """All fields by name, in JSON types."""
        return {**asdict(self), "study": None if self.study is None else self.study.to_dict()}

    def lines(self, most_predicates: int = 20) -> list[str]:
        """For people, one fact a line."""
        shown = [f"  {text}" for text in self.predicates[:most_predicates]]
        rest = len(self.predicates) - most_predicates
        more = [f"  and {rest} more predicates"] if rest > 0 else []
        return [
            f"learner {self.learner} asks for {self.words}",
            purpose_line(self.purpose),
            *([f"one of several queries, as the learner states it: a {self.training}"] if self.training else []),
            *study_lines(self.study),
            *(["predicates:", *shown, *more] if self.predicates else []),
            f"columns that the answer depends on: {', '.join(self.columns) or 'none'}",
            *([f"numbers beyond these bounds count as if at them: {', '.join(self.bounds)}"] if self.bounds else []),
            f"the total has {amount(self.values, 'number')}, each a sum over at least {self.cohort_min} parties",
            (
                f"expires {local_time(self.not_after_unix_s)}; at most {amount(self.max_attempts, 'attempt')}, each "
                "charged"
            ),
        ]


def purpose_line(purpose: str) -> str:
    """What the learner says that an answer is for, for people. Quoted, so that it looks like nothing else."""
    return f"purpose, as the learner states it: {json_text(purpose)}" if purpose else "purpose: none is stated"


def with_purpose(words: str, purpose: str, study: Study | None = None) -> str:
    """What is asked in one line, with what it is for if that is stated."""
    words = f"{words}; purpose: {json_text(purpose)}" if purpose else words
    return words if study is None else f"{words}; study: {study.short}"


def _bounds(schema: Schema, read: Iterable[str]) -> tuple[str, ...]:
    own = set(read)
    numbers = (each for each in schema.numbers if each.column in own)
    return tuple(f"{each.column} {each.written(each.lower, 10)} to {each.written(each.upper, 10)}" for each in numbers)


def _predicates_of(statistic: StatisticQuery) -> tuple[str, ...]:
    if statistic.feature_map is not None:
        # Their forms are of the map's coordinates.
        return tuple(described(predicate) for predicate in statistic.predicates)
    return tuple(readable(predicate, statistic.schema) for predicate in statistic.predicates)


def _columns_of(statistic: StatisticQuery) -> tuple[str, ...]:
    return columns(statistic.schema, statistic.predicates, statistic.feature_map)


def columns(
    schema: Schema, predicates: Iterable[Predicate] | None = None, feature_map: FeatureMap | None = None
) -> tuple[str, ...]:
    """The source columns of the schema that these predicates read; all columns if there are no predicates.

    The label's column is among them where a predicate reads the label. feature_map: whose coordinates forms are of.
    """
    coordinates = FormCoordinates(schema, feature_map)
    own = {group.name: group.column for group in schema.groups}
    if predicates is None:
        weight = () if schema.weight is None else (schema.weight.column,)
        return tuple(dict.fromkeys((*own.values(), *schema.label.columns, *weight)))
    found: set[str] = set()
    seen: set[int] = set()
    waiting = list(predicates)
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        waiting += node.children()
        if isinstance(node, Flag | Equals | AtLeast | Above):
            found.add(own[node.feature])
        elif isinstance(node, NonNegative | Clipped | CountGain | LabelError):
            found.update(*(coordinates.columns(name) for name, _ in node.form.weights))
        if isinstance(node, LabelExposure | CountDeviance):
            found.update(schema.label.columns)
        elif node.labelled and not node.children():
            found.add(schema.label.column)
    return tuple(column for column in dict.fromkeys((*own.values(), *schema.label.columns)) if column in found)


# Everything that a signed query says, for the people who decide on it: what is shown is what its digest binds.
#
# A query's id is the SHA-256 of its signed bytes. `signed_parts` walks the message that these bytes hold and shows
# each field, also one that a later version adds: with its exact value, and beside it what the value means, such as a
# knot in the units of its column. Two queries of different fields never look the same, with or without their ids
# (tests/wire/test_signed_fields.py changes every field of every kind of query).
#
# Its length is proportional to that of the signed bytes, because predicates that share a part are a table of nodes
# here, as they are in the query.


TITLE = "Everything that was signed"
"""Of the part of a page that shows it."""

_TERMS = "terms"
_MEANINGS = {
    "nonce": "random, so that no two queries are the same",
    "roster_version": "the list of members that the learner planned with",
    "schema_digest": "SHA-256 of the schema below",
    "max_rows": "the most rows of a cohort",
    "max_parties": "the most parties of a cohort",
    "cohort_min": "the fewest parties of a cohort",
    "honest_parties": "parties whose noise must suffice",
    "max_attempts": "each of them charged",
    "features": "parts of the protocol that it uses",
    "epoch": "of the rows that it is about; no other rows count, and each epoch has its own budget",
    "noise_of_cohort": "the noise is that of the cohort that answers; 0: of the smallest one",
    "mask_neighbours": "each party of a cohort shares masks with so many others; 0: with all others",
    "may_vanish": "so many of the parties that accept may vanish before they have uploaded; 0: none",
    "purpose": "what the learner says that the answer is for; nothing checks it",
    "Study.purpose": "what the learner says that the study is to find out; nothing checks it",
    "Study.protocol_number": "the study's budget at a party goes by it",
    "Study.begins": "its first day, in UTC",
    "Study.ends": "its last day, in UTC",
    "quorum_wait_s": "wait for further parties once there are enough; 0 for the whole phase",
}


@dataclass(frozen=True)
class SignedField:
    """One line."""

    name: str
    value: str
    """Exact; no other field's value has the same text."""
    meaning: str = ""
    """For people; may be empty."""

    def __str__(self) -> str:
        return f"{self.name}: {self.value}{f'  ({self.meaning})' if self.meaning else ''}"


@dataclass(frozen=True)
class SignedPart:
    """A part of a query, such as its feature map. fields: all of them."""

    title: str
    fields: tuple[SignedField, ...]

    def to_dict(self) -> dict[str, Any]:
        """All fields by name, in JSON types."""
        return asdict(self)

    def lines(self) -> list[str]:
        """For a terminal."""
        return [f"  {self.title}", *(f"    {field}" for field in self.fields)]


def signed_parts(payload: bytes) -> tuple[SignedPart, ...]:
    """Every field of a signed query, from the bytes of which the query's id is the digest.

    The kind and the feature map come first, then what else was signed. Raises WireError if it is no valid query.
    """
    query, asked = Query.from_bytes(payload), parse(query_pb2.Query, payload)
    shown, message = _Shown(query, asked), cast("Message", asked)
    terms: list[SignedField] = []
    parts: dict[str, list[SignedField]] = {}
    for field in _fields_of(message):
        if field.name == "epoch" and not message.HasField("epoch"):
            continue
        if field.name == "schema":
            parts[field.name] = list(_schema_fields(query.schema))
        elif field.name == "paillier_key":
            parts[field.name] = list(_key_fields(asked.paillier_key))
        elif field.message_type is None or field.message_type.name == "Rational":
            terms += shown.lines(message, field)
        elif message.HasField(field.name):
            parts[field.name] = list(shown.fields(getattr(message, field.name), field.name))
    first = [name for name in (asked.WhichOneof("kind"), "feature_map", "held_back") if name in parts]
    parts[_TERMS] = terms
    return tuple(SignedPart(name, tuple(parts[name])) for name in dict.fromkeys((*first, _TERMS, *parts)))


def signed_lines(parts: Sequence[SignedPart]) -> list[str]:
    """For a terminal, with a title."""
    return [f"{TITLE[:1].lower()}{TITLE[1:]}:", *(line for part in parts for line in part.lines())]


class _Shown:
    """The lines of a query's message."""

    def __init__(self, query: Query, message: query_pb2.Query) -> None:
        self._query, self._message = query, message

    def fields(self, message: Message, path: str) -> Iterator[SignedField]:
        """A line for each field of a message that is set, and for each entry of one that is repeated."""
        for field in _fields_of(message):
            if not field.has_presence or message.HasField(field.name):
                yield from self.lines(message, field, f"{path}.")

    def lines(self, message: Message, field: FieldDescriptor, path: str = "") -> Iterator[SignedField]:
        """The lines of one field. path: what names its message, with a dot."""
        name, value = f"{path}{field.name}", getattr(message, field.name)
        if field.full_name == "rado.v1.GradientQuery.basis":
            yield from self._basis_rows(name, value)
        elif field.is_repeated and field.type != FieldDescriptor.TYPE_STRING:
            for place, entry in enumerate(value):
                yield SignedField(f"{name}[{place}]", _text(field, entry), self._meaning_of_entry(field, place, entry))
        elif field.message_type is None or isinstance(value, query_pb2.Rational):
            yield SignedField(name, _value(field, value), self._meaning(field, value))
        else:
            # Also of a message without fields, such as a design: that it is there is what it says.
            yield from self.fields(value, name) if field.message_type.fields else [SignedField(name, "{}")]

    def _meaning(self, field: FieldDescriptor, value: Any) -> str:
        if isinstance(value, query_pb2.Rational):
            return "" if value.denominator == 1 else f"{value.numerator / value.denominator:.6g}"
        if field.name.endswith("_unix_s"):
            return local_time(value)
        if field.name.endswith("_sigma"):
            return self._noise(field, value)
        # A field of a study has its own meaning, such as its purpose.
        meaning = _MEANINGS.get(field.full_name.removeprefix("rado.v1."), _MEANINGS.get(field.name, ""))
        if field.name.endswith("_s") and value:
            meaning = f"{duration(value)}{': ' * bool(meaning)}{meaning}"
        return meaning

    def _noise(self, field: FieldDescriptor, sigma: int) -> str:
        if not sigma:
            return "no noise"
        kind, bits = self._query.kind, self._query.encoding.fraction_bits
        unit = kind.unit(bits) if isinstance(kind, GradientQuery) else 2.0**-bits
        whose = "on each record's edge" if field.name == "edge_sigma" else "of each party's share"
        return f"standard deviation of the noise {whose}: {sigma * unit:.6g}"

    def _meaning_of_entry(self, field: FieldDescriptor, place: int, entry: Any) -> str:
        match field.full_name:
            case "rado.v1.FeatureMap.terms":
                assert self._query.feature_map is not None, "only a map has terms"
                return self._query.feature_map.described(place, self._query.schema)
            case "rado.v1.GradientQuery.theta":
                number, place = divmod(place, len(self._names))
                in_basis = bool(self._message.gradient.basis)
                at = f"coordinate {place} of the basis" if in_basis else self._names[place]
                label = self._query.schema.label
                of_class = f" for {label.values[number]}" if isinstance(label, Classes) else ""
                return f"{at}{of_class}: {entry / (1 << THETA_BITS):.6g}"
            case "rado.v1.GradientQuery.class_weights":
                return f"how much a record of {self._classes[place]!r} weighs beside the others"
            case "rado.v1.StatisticQuery.nodes":
                return self._node_words(place, entry)
            case "rado.v1.StatisticQuery.predicates":
                return f"what number {place + 1} of the total adds up is node {entry}"
            case _:
                return ""

    @property
    def _classes(self) -> tuple[str, ...]:
        """What to call the classes of the label."""
        label = self._query.schema.label
        return label.names if isinstance(label, Label) else label.values if isinstance(label, Classes) else ()

    @cached_property
    def _names(self) -> tuple[str, ...]:
        """Of the coordinates of a record as the kind sees it."""
        return FormCoordinates(self._query.schema, self._query.feature_map).names

    @cached_property
    def _nodes(self) -> list[Predicate]:
        return read_nodes(self._message.statistic, FormCoordinates(self._query.schema, self._query.feature_map))

    def _node_words(self, place: int, node: query_pb2.PredicateNode) -> str:
        match self._nodes[place]:
            case Not():
                return f"not node {node.complement}"
            case And():
                return " & ".join(f"node {each}" for each in node.all_of.places)
            case Or():
                return " | ".join(f"node {each}" for each in node.any_of.places)
            case atom:
                return described(atom)

    def _basis_rows(self, name: str, entries: Sequence[int]) -> Iterator[SignedField]:
        """A line for each row: one for each entry would be thousands."""
        d = self._query.d
        for row in range(len(entries) // d):
            values = ", ".join(map(str, entries[row * d : row * d + d]))
            meaning = f"in units of 2^-{BASIS_BITS}; columns: {', '.join(self._names)}" if row == 0 else ""
            yield SignedField(f"{name}[{row}]", f"[{values}]", meaning)


def _schema_fields(schema: Schema) -> Iterator[SignedField]:
    """The canonical form of a schema is a function of these, and they of it."""
    yield SignedField("schema.name", json_text(schema.name))
    yield SignedField("schema.bias", "true" if schema.bias else "false")
    yield SignedField("schema.texts", json_text(list(schema.texts)), "the form in which texts are compared")
    yield SignedField("schema.label", json_text(plain(schema.label)))
    if schema.weight is not None:
        yield SignedField("schema.weight", json_text(asdict(schema.weight)), "what each row counts")
    for place, feature in enumerate(schema.features):
        yield SignedField(f"schema.features[{place}]", json_text(plain(feature)))


def _key_fields(envelope: envelope_pb2.Signed) -> Iterator[SignedField]:
    """The learner's key: what its certificate says, with digests of long numbers, and the certificate's signature."""
    key = parse(query_pb2.PaillierKey, envelope.payload)
    for field in _fields_of(key):
        value, name = getattr(key, field.name), f"paillier_key.{field.name}"
        if field.name == "modulus":
            yield SignedField(name, _digest(value), f"{int.from_bytes(value, 'big').bit_length()} bits")
        elif field.name == "subgroup":
            if key.HasField("subgroup"):
                yield SignedField(f"{name}.generator", _digest(value.generator), "obfuscators are its powers")
                yield SignedField(f"{name}.order_bits", str(value.order_bits), "its order is below 2^order_bits")
        else:
            yield SignedField(name, _value(field, value), local_time(value) if field.name.endswith("_unix_s") else "")
    yield SignedField("paillier_key.key_id", envelope.key_id.hex(), "the signing key that certifies it")
    yield SignedField("paillier_key.signature", envelope.signature.hex())


def _digest(octets: bytes) -> str:
    return f"SHA-256 {hashlib.sha256(octets).hexdigest()}"


def _fields_of(message: Message) -> list[FieldDescriptor]:
    """All fields that such a message may have."""
    return cast("list[FieldDescriptor]", list(message.DESCRIPTOR.fields))


def _value(field: FieldDescriptor, value: Any) -> str:
    if not field.is_repeated:
        return _text(field, value)
    return f"[{', '.join(_text(field, entry) for entry in value)}]"


def _text(field: FieldDescriptor, value: Any) -> str:
    """One value on one line: of different values, different texts."""
    if isinstance(value, query_pb2.Rational):
        return str(value.numerator) if value.denominator == 1 else f"{value.numerator}/{value.denominator}"
    if field.message_type is not None:
        inside = [
            f"{each.name}: {_value(each, getattr(value, each.name))}"
            for each in _fields_of(value)
            if not each.has_presence or value.HasField(each.name)
        ]
        return f"{{{', '.join(inside)}}}"
    if field.enum_type is not None:
        return str(field.enum_type.values_by_number[value].name)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, bool):
        return "true" if value else "false"
    return json_text(value) if isinstance(value, str) else str(value)
