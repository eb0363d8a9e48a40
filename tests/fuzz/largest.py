"""The largest legal and hostile inputs of the parsers, each read in a child process with limits.

`python -m tests.fuzz.largest` prints a JSON line for each: whether it was accepted, the resident memory that it took
and its processor time. With a number N, only each N-th is read.
"""

import json
import os
import resource
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from rado.v1 import query_pb2, release_pb2
from tests.fuzz import world
from tests.fuzz.tables import zipped
from tests.fuzz.target import all_targets

MEMORY_MB = 500
# A fuse: the aim is 2 s on a quiet machine, and others are slower.
PROCESSOR_S = 200
MEBIBYTE = 1 << 20


def inputs() -> Iterator[tuple[str, str, Callable[[], bytes]]]:
    """Target, what is special, and the input."""
    for name in ("policy", "schema-toml"):
        yield name, "a key of thousands of parts", lambda: b"a." * (128 << 10) + b"a=1"
        yield name, "a key of one long part", lambda: b"a" * (250 << 10)
        yield name, "an unclosed text of quotation marks", lambda: b'a="' + b'\\"' * (120 << 10)
        yield name, "tables in tables", lambda: b"a=" + b"{a=" * 40_000
    yield "policy", "many keys", lambda: b"".join(b"a%d=1\n" % number for number in range(26_000))
    yield "schema-toml", "many features", lambda: toml_schema(MEBIBYTE)
    yield "schema-canonical", "many values", canonical_schema
    for name in ("model", "release-json", "journal", "manifest"):
        limit = all_targets()[name].limit_bytes
        yield name, "empty lists", lambda limit=limit: b'{"a":[' + b"[]," * ((limit - 20) // 3) + b"0]}"
        yield name, "one long text", lambda limit=limit: b'{"a":"' + "\U0001f600".encode() * ((limit - 20) // 4) + b'"}'
        yield name, "integers", lambda limit=limit: b'{"a":[' + b"1," * ((limit - 20) // 2) + b"0]}"
    yield "predicate", "complements", lambda: b"~" * (1 << 16) + b"true"
    yield "predicate", "alternatives", lambda: b"|".join([b"true"] * 13_000)
    yield "predicate", "an affine form", lambda: b"+".join(b'z["%d"]' % n for n in range(5500)) + b">=0"
    yield "number", "digits", lambda: b"1" * (1 << 17)
    yield "number", "an exponent", lambda: b"1e999"
    yield "number", "an exponent in other digits", "1e\u0669\u0669\u0669\u0669\u0669\u0669\u0669\u0669".encode
    yield "csv", "a line without end", lambda: b"age\n" + b"x" * (64 * MEBIBYTE)
    yield "csv", "a header without end", lambda: b"x," * (32 * MEBIBYTE)
    yield "csv", "a row of many lines", lambda: b"age,b\n" + b'"1\n",' * (10 * MEBIBYTE)
    yield "csv-gz", "a line of zeros", lambda: zipped(b"age\n" + bytes(128 * MEBIBYTE))
    yield "predicate-table", "many nodes", lambda: table(60_000)
    yield "payload-query", "a misspelt name among a thousand alike", alike
    yield "payload-query", "a map of thousands of terms of a column with a long name", mapped
    yield "total", "an acceptance ten thousand times", repeated_acceptances
    yield (
        "release-array",
        "a shape of 2^40",
        lambda: (
            b"\x93NUMPY\x01\x00\x76\x00"
            + (b"{'descr': '<i8', 'fortran_order': False, 'shape': (1099511627776,), }".ljust(117) + b"\n")
        ),
    )
    yield "cluster-message", "a memo of 2^27 places", lambda: b"\x80\x04Nr\x00\x00\x00\x08."


def toml_schema(most: int) -> bytes:
    head = b'schema_version = 1\nname = "s"\n[label]\ncolumn = "y"\npositive = ["1"]\n'
    feature = b'[[features]]\nname = "f%05d"\ntype = "boolean"\ntrue = ["1"]\nfalse = ["0"]\n'
    return head + b"".join(feature % number for number in range((most - len(head)) // (len(feature) + 1)))


def canonical_schema() -> bytes:
    from dpcore.records.features import CategoryFeature, Label
    from dpcore.records.schema import Schema

    values = tuple(f"v{number:06d}" for number in range(46_000))
    label = Label(column="y", positive=("1",))
    return Schema(name="s", label=label, features=(CategoryFeature(name="c", values=values),)).canonical_bytes()


def table(nodes: int) -> bytes:
    message = query_pb2.StatisticQuery(share_sigma=7)
    message.nodes.add().flag = 1
    for place in range(1, nodes):
        node = message.nodes.add()
        node.equals.feature, node.equals.value = 2, place
    message.predicates.extend(range(nodes))
    return message.SerializeToString()


def alike() -> bytes:
    """A feature that the schema lacks, a permutation of the letters of each of its 1000 features."""
    from dpcore.records.features import BooleanFeature, Label
    from dpcore.records.schema import Schema

    names = [f"{'ab' * (n % 40)}{'ba' * (40 - n % 40)}{n:04d}"[:100] for n in range(1000)]
    features = tuple(BooleanFeature(name=name, true=("1",), false=("0",)) for name in names)
    schema = Schema(name="s", label=Label(column="y", positive=("1",)), features=features)
    message = query_pb2.Query.FromString(world.queries()[0].to_bytes())
    message.schema, message.schema_digest = schema.canonical_bytes(), schema.digest
    message.rados.dp_feat.sensitive_feature = "ab" * 20 + "ba" * 20 + "5555"
    message.rados.dp_feat.split = query_pb2.SPLIT_LOCAL
    return message.SerializeToString()


def mapped() -> bytes:
    """A statistic over point masses, each of which has the column's name in its own."""
    from dpcore.records.features import Label, RealFeature
    from dpcore.records.schema import Schema

    feature = RealFeature(name="a" * 200_000, lower=0.0, upper=1.0)
    schema = Schema(name="s", label=Label(column="y", positive=("1",)), features=(feature,))
    queries = (query_pb2.Query.FromString(query.to_bytes()) for query in world.queries())
    message = next(query for query in queries if query.HasField("statistic") and query.HasField("feature_map"))
    message.schema, message.schema_digest = schema.canonical_bytes(), schema.digest
    values = (query_pb2.PointMass(coordinate=0, at=at) for at in range(4096))
    terms = [query_pb2.MapTerm(point_mass=value) for value in values]
    message.feature_map.CopyFrom(query_pb2.FeatureMap(terms=terms))
    form = query_pb2.AffineForm(coordinates=[7, 4000], weights=[3, -1])
    del message.statistic.nodes[:], message.statistic.predicates[:]
    message.statistic.nodes.append(query_pb2.PredicateNode(non_negative=form))
    message.statistic.predicates.append(0)
    return message.SerializeToString(deterministic=True)


def repeated_acceptances() -> bytes:
    total = release_pb2.Total.FromString(world.total().to_proto().SerializeToString())
    first = total.cohort.acceptances[0]
    total.cohort.acceptances.extend([first] * 10_000)
    total.receipts.extend([total.receipts[0]] * 2000)
    return total.SerializeToString()


def resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MEBIBYTE


def measured(target: str, what: str, make: Callable[[], bytes]) -> dict:
    """Read one input in a child. Its memory includes the input."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        with os.fdopen(writer, "w") as pipe:
            data = make()
            before, start = resident_mb(), os.times().user + os.times().system
            resource.setrlimit(resource.RLIMIT_CPU, (int(start) + PROCESSOR_S, int(start) + PROCESSOR_S))
            found: dict = {"bytes": len(data)}
            try:
                found["accepted"] = all_targets()[target].check(data)
            except BaseException as error:  # noqa: BLE001 - whatever it is, it is reported
                found["error"] = repr(error)[:200]
            found["memory_mb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before)
            found["processor_s"] = round(os.times().user + os.times().system - start, 2)
            json.dump(found, pipe)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return {"target": target, "what": what, **(json.loads(text) if text else {"error": "it was killed"})}


def main(every: int = 1) -> None:
    all_targets()
    for target, what, make in islice(inputs(), 0, None, every):
        sys.stdout.write(json.dumps(measured(target, what, make)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
