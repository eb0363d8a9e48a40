"""Write records.json next to this file: python tests/vectors/make_record_vectors.py

From the cells of a table to coordinates, to a party's sums, to its ciphertexts, and from the total's ciphertexts to the
learner's answer. A second run writes the same bytes (tests/protocol/test_record_vectors.py compares).

Everything is computed here as docs/protocol.md says, with Python's standard library, not with the code that the
vectors test; keys, envelopes and masks are those of make_protocol_vectors.py.
"""

import csv
import datetime as dt
import io
import json
import math
import re
import struct
import sys
import unicodedata
from decimal import Decimal, localcontext
from fractions import Fraction
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from rado.v1 import join_pb2, roster_pb2
from tests.vectors import make_protocol_vectors as base
from tests.vectors.make_protocol_vectors import NOW, payload, sha, signed

ONE = 1 << 30
NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
DATE = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})([Tt ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,9})?)?)?")
ENDS = " \t\r\n"
BLANKS = (
    ENDS
    + "\v\f\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000\u200b\u2060\ufeff"
    + "".join(map(chr, range(0x2000, 0x200B)))
)
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


# Section 4: schemas.


def hexadecimal(number):
    return struct.pack(">d", float(number) + 0.0).hex()


def real(name, lower, upper, **more):
    fields = {"type": "real", "lower": hexadecimal(lower), "upper": hexadecimal(upper), "out_of_bounds": "refuse"}
    return feature(name, **{**fields, **more})


def feature(name, **fields):
    return {"name": name, "column": name, "missing": "refuse", "impute": None, **fields}


def schema(name, label, *features, **more):
    return {"name": name, "bias": True, "label": label, "features": list(features), **more}


def canonical(table):
    return json.dumps(table, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def digest_of(table):
    return sha(b"rado.v1/schema\0", canonical(table).encode())


def number_of(text):
    (number,) = struct.unpack(">d", bytes.fromhex(text))
    return number


# Section 4: from a cell to a value. A value is None for a missing cell; the marks are for cells that policies are for.


class UnusualError(Exception):
    def __init__(self, policy, cells):
        self.policy, self.cells = policy, cells


def form(text, steps):
    if len(text) > 256:
        return text
    if "nfc" in steps:
        text = unicodedata.normalize("NFC", text)
    if "trim" in steps:
        text = text.strip(BLANKS)
    if "case" in steps:
        text = text.casefold()
        text = unicodedata.normalize("NFC", text) if "nfc" in steps else text
    return text


def read_number(cell):
    text = cell.strip(ENDS).strip(BLANKS)
    if not text:
        raise UnusualError("missing", "missing")
    number = float(text) if NUMBER.fullmatch(text) else math.nan
    if not math.isfinite(number):
        raise UnusualError("unreadable", "unreadable")
    return number + 0.0


def read_text(cell, steps, prefix=None):
    text = form(cell.strip(ENDS), steps)
    if not text:
        raise UnusualError("missing", "missing")
    return text if prefix is None else text[:prefix]


def read_day(cell, steps):
    found = DATE.fullmatch(read_text(cell, steps))
    try:
        return dt.date.fromisoformat(found[1]) if found else None
    except ValueError:
        return None


def listed(text, lists, steps):
    """The key of the list that has the text; None if none has."""
    return next((key for key, texts in lists.items() if text in [form(each, steps) for each in texts or ()]), None)


def scaled(value, lower, upper):
    """In doubles, rounded after each operation; then truncated toward zero to units of 2^-30."""
    return int((((value - lower) / (upper - lower)) * 2.0 - 1.0) * ONE)


class NotUsableError(Exception):
    pass


class RefusedError(Exception):
    pass


def policy(part, unusual, absent="refuse"):
    """What the policy does to an unusual cell, such as "impute". Raises NotUsableError or RefusedError."""
    choice = part.get(unusual.policy, absent)
    if choice == "refuse":
        raise RefusedError
    if choice == "zero-vector":
        raise NotUsableError
    return choice


def of_feature(part, cell, steps):
    """The coordinates of a cell, in units of 2^-30. Raises NotUsableError or RefusedError."""
    absent = "refuse" if part["missing"] == "refuse" else "zero-vector"
    match part["type"]:
        case "real":
            lower, upper = number_of(part["lower"]), number_of(part["upper"])
            try:
                value = read_number(cell)
            except UnusualError as unusual:
                policy(part, unusual, absent)
                value = number_of(part["impute"])
            if not lower <= value <= upper:
                policy(part, UnusualError("out_of_bounds", "beyond"))
                value = min(max(value, lower), upper)
            return [scaled(value, lower, upper)]
        case "threshold":
            try:
                high = read_number(cell) >= number_of(part["threshold"])
            except UnusualError as unusual:
                policy(part, unusual, absent)
                high = part["impute"]
            return [ONE if high else -ONE]
        case "boolean":
            try:
                found = listed(read_text(cell, steps), {key: part[key] for key in ("true", "false")}, steps)
                if found is None:
                    raise UnusualError("unknown", "unlisted")
                is_true = found == "true"
            except UnusualError as unusual:
                policy(part, unusual)
                is_true = part["impute"]
            return [ONE if is_true else -ONE]
        case "category":
            forms = [form(each, steps) for each in part["values"]]
            try:
                text = read_text(cell, steps, part.get("prefix"))
                if text not in forms:
                    raise UnusualError("unknown", "unlisted")
            except UnusualError as unusual:
                text = None if policy(part, unusual) == "zero" else form(part["impute"], steps)
            return [ONE if each == text else 0 for each in forms]
        case "date":
            return of_date(part, cell, steps, absent)


def of_date(part, cell, steps, absent):
    first, last, since = (dt.date.fromisoformat(part[key]) for key in ("first", "last", "since"))
    try:
        day = read_day(cell, steps)
        if day is None:
            raise UnusualError("unreadable", "unreadable")
    except UnusualError as unusual:
        policy(part, unusual, absent)
        day = dt.date.fromisoformat(part["impute"])
    if not first <= day <= last:
        policy(part, UnusualError("out_of_bounds", "beyond"))
        day = min(max(day, first), last)
    after = [float(each.toordinal() - since.toordinal()) for each in (day, first, last)]
    places = {
        "year": (day.year - first.year, last.year - first.year + 1),
        "month": (day.month - 1, 12),
        "weekday": (day.weekday(), 7),
    }
    found = [scaled(*after)]
    for name in part["parts"]:
        place, count = places[name]
        found += [ONE if each == place else 0 for each in range(count)]
    return found


def of_label(part, cells, steps):
    """The label in its coding. Raises NotUsableError or RefusedError."""
    cell = cells[part["column"]]
    try:
        match part.get("type", "two classes"):
            case "two classes":
                found = listed(read_text(cell, steps), {key: part[key] for key in ("positive", "negative")}, steps)
                if found is None and part["negative"] is not None:
                    raise UnusualError("missing", "unlisted")
                return 1 if found == "positive" else -1
            case "classes":
                text = read_text(cell, steps, part.get("prefix"))
                forms = [form(each, steps) for each in part["values"]]
                if text not in forms:
                    raise UnusualError("unlisted", "unlisted")
                return forms.index(text)
            case "number":
                return of_number(part, cell)
            case "count":
                return of_count(part, cell, cells)
            case "event":
                return of_event(part, cells, steps)
    except UnusualError as unusual:
        policy(part, unusual)
        raise AssertionError("labels are not imputed") from None


def logarithm(number):
    with localcontext() as context:
        context.prec = 60
        return Decimal(number).ln()


def of_number(part, cell):
    lower, upper, value = number_of(part["lower"]), number_of(part["upper"]), read_number(cell)
    if not lower <= value <= upper:
        policy(part, UnusualError("out_of_bounds", "beyond"))
        value = min(max(value, lower), upper)
    if not part["log"]:
        return scaled(value, lower, upper)
    low, high, at = (Fraction(logarithm(each)) for each in (lower, upper, value))
    return int((2 * (at - low) / (high - low) - 1) * ONE)


def of_count(part, cell, cells):
    count = read_number(cell)
    if count < 0 or count != math.floor(count):
        raise UnusualError("unreadable", "unreadable")
    exposure = None
    if part["exposure"] is not None:
        exposure = read_number(cells[part["exposure"]])
        if exposure <= 0:
            raise UnusualError("unreadable", "unreadable")
    if count > part["upper"]:
        policy(part, UnusualError("out_of_bounds", "beyond"))
        count = part["upper"]
    if exposure is None:
        return int(count)
    low, high = number_of(part["exposure_lower"]), number_of(part["exposure_upper"])
    if not low <= exposure <= high:
        policy(part, UnusualError("out_of_bounds", "beyond"))
        exposure = min(max(exposure, low), high)
    return [int(count), round(logarithm(exposure) * (1 << 20))]


def of_event(part, cells, steps):
    time = read_number(cells[part["column"]])
    if time <= 0:
        raise UnusualError("unreadable", "unreadable")
    found = listed(read_text(cells[part["event"]], steps), {key: part[key] for key in ("happened", "censored")}, steps)
    if found is None and part["censored"] is not None:
        raise UnusualError("unlisted", "unlisted")
    borders = [number_of(each) for each in part["borders"]]
    place = sum(border < time for border in borders)
    return 2 * len(borders) if place == len(borders) else place + len(borders) * (found != "happened")


def of_weight(part, cell):
    upper = number_of(part["upper"])
    try:
        weight = read_number(cell)
        if weight < 0:
            raise UnusualError("unreadable", "unreadable")
        if weight > upper:
            policy(part, UnusualError("out_of_bounds", "beyond"))
            weight = upper if part["out_of_bounds"] == "clip" else 0.0
    except UnusualError as unusual:
        policy(part, unusual)
        weight = 0.0
    return math.floor(weight / upper * 1024 + 0.5)


def of_row(table, cells):
    """Coordinates, label and usability of a row, and its weight if there is one. Raises RefusedError."""
    steps, found, usable = table.get("texts", []), [], True
    for part in table["features"]:
        try:
            found += of_feature(part, cells[part["column"]], steps)
        except NotUsableError:
            usable = False
    label = None
    try:
        label = of_label(table["label"], cells, steps)
    except NotUsableError:
        usable = False
    row = {"usable": usable, "label": label if usable else None}
    width = sum(len(names_of(part)) for part in table["features"]) + table["bias"]
    row["coordinates"] = [*found, *([ONE] if table["bias"] else [])] if usable else [0] * width
    if "weight" in table:
        row["weight"] = of_weight(table["weight"], cells[table["weight"]["column"]])
    return row


def names_of(part):
    match part["type"]:
        case "category":
            return [f"{part['name']}={each}" for each in part["values"]]
        case "date":
            years = range(int(part["first"][:4]), int(part["last"][:4]) + 1)
            months = [dt.date(2024, month, 1).strftime("%B") for month in range(1, 13)]
            values = {"year": years, "month": months, "weekday": WEEKDAYS}
            more = [f"{part['name']}.{each}={value}" for each in part["parts"] for value in values[each]]
            return [part["name"], *more]
        case _:
            return [part["name"]]


def table_vector(name, table, text):
    rows = [of_row(table, cells) for cells in csv.DictReader(io.StringIO(text))]
    names = [each for part in table["features"] for each in names_of(part)] + ["bias"] * table["bias"]
    return {
        "name": name,
        "schema": canonical(table),
        "digest": digest_of(table).hex(),
        "csv": text,
        "coordinates": names,
        "rows": rows,
    }


TWO = {"column": "y", "positive": ["1"], "negative": ["0"], "missing": "zero-vector"}
AGE = real("age", 0, 100, out_of_bounds="clip")


def features_table():
    parts = (
        real("age", 0, 100, missing="impute", impute=hexadecimal(50), out_of_bounds="clip", unreadable="zero-vector"),
        real("dose", -1.5, 2.25, missing="zero-vector", out_of_bounds="zero-vector"),
        feature("smoker", type="boolean", true=["1", "ja"], false=["0", "nein"], unknown="impute", impute=False),
        feature(
            "high", type="threshold", threshold=hexadecimal(140), missing="impute", impute=True, unreadable="impute",
        ),
        feature("ward", type="category", values=["Gen\u00e8ve", "north", "07"], unknown="zero", missing="zero-vector"),
        feature("code", type="category", values=["E1", "I2"], unknown="impute", impute="I2", prefix=2),
        feature(
            "seen", type="date", first="2023-11-15", last="2024-12-31", since="2024-01-01", parts=["year", "weekday"],
            missing="zero-vector", out_of_bounds="clip",
        ),
    )  # fmt: skip
    table = schema("features", TWO, *parts, texts=["nfc", "trim"], schema_version=5)
    plain = {"age": "41", "dose": "0.5", "smoker": "ja", "high": "140", "ward": "north", "code": "E119"}
    plain |= {"seen": "2024-02-29", "y": "1"}
    odd = [
        *(
            {"age": each}
            for each in ("", " 41 ", "1e2", "+7.", ".5", "-3", "250", "\u00a033\u00a0", "4,5", "n/a", "inf")
        ),
        *({"age": each} for each in ("1_0", "\u0664\u0661", "0x10", "1e-400", "1e999", "00012")),
        *({"dose": each} for each in ("", "2.25", "2.26", "-1.5", "0.1", "1e-3", "\u00a0")),
        *({"smoker": each} for each in ("1", "01", "JA", "nein", "\u2003ja\u200b")),
        *({"high": each} for each in ("139.99999999999999", "", "high", "1e308")),
        *({"ward": each} for each in ("Gene\u0300ve", "gen\u00e8ve", "7", "07", "", "\u00a0")),
        *({"code": each} for each in ("E", "I2", "e11", "Z9", "I25.1")),
        *({"seen": each} for each in ("2023-02-29", "2024-06-01T23:59:59.123456789", "2024-06-02 00:00")),
        *({"seen": each} for each in ("2024-06-01T10:00Z", "01.06.2024", "1999-01-01", "2031-01-01", "", "2024-12-31")),
        *({"y": each} for each in ("0", "", "2", " 1 ")),
    ]
    text = io.StringIO()
    writer = csv.DictWriter(text, plain, lineterminator="\n")
    writer.writeheader()
    writer.writerows([plain, *({**plain, **each} for each in odd)])
    return table_vector("features, cell by cell", table, text.getvalue())


def labels_tables():
    leave = "zero-vector"
    borders = [hexadecimal(each) for each in (1, 2.5, 10)]
    labels = {
        "two classes, all others": ({"column": "y", "positive": ["1"], "negative": None, "missing": leave}, 1,
            ["1", "0", "", "x"]),
        "several classes": ({"type": "classes", "column": "y", "values": ["a", "b", "C"], "missing": leave,
            "unlisted": leave}, 4, ["a", "C", "c", "", "d"]),
        "a number": ({"type": "number", "column": "y", "lower": hexadecimal(-1), "upper": hexadecimal(3), "log": False,
            "missing": leave, "unreadable": leave, "out_of_bounds": "clip"}, 5, ["-1", "0.1", "3", "4", "", "x"]),
        "a number by its logarithm": ({"type": "number", "column": "y", "lower": hexadecimal(0.5),
            "upper": hexadecimal(200), "log": True, "missing": leave, "unreadable": leave, "out_of_bounds": leave}, 5,
            ["0.5", "7", "200", "0.25"]),
        "a count": ({"type": "count", "column": "y", "upper": 9, "exposure": None, "exposure_lower": None,
            "exposure_upper": None, "missing": leave, "unreadable": leave, "out_of_bounds": "clip"}, 5,
            ["0", "9", "10", "1.5", "-1", "2e0", ""]),
        "a count over an exposure": ({"type": "count", "column": "y", "upper": 9, "exposure": "e",
            "exposure_lower": hexadecimal(0.5), "exposure_upper": hexadecimal(12), "missing": leave,
            "unreadable": leave, "out_of_bounds": "clip"}, 5, ["3,1", "3,0.5", "3,20", "3,0", "12,7", "3,"]),
        "a time to an event": ({"type": "event", "column": "y", "event": "e", "happened": ["1"], "censored": ["0"],
            "borders": borders, "missing": leave, "unlisted": leave, "unreadable": leave}, 5,
            ["0.5,1", "1,1", "1.5,0", "10,1", "10.5,1", "99,0", "0,1", "3,2", ",1", "3,"]),
    }  # fmt: skip
    found = []
    for name, (label, version, cells) in labels.items():
        table = schema(name, label, AGE, schema_version=version)
        more = ",e" if "," in cells[0] else ""
        text = f"age,y{more}\n" + "".join(f"{10 * place},{each}\n" for place, each in enumerate(cells))
        found.append(table_vector(f"label: {name}", table, text))
    weight = {
        "column": "w",
        "upper": hexadecimal(5),
        "missing": "no-weight",
        "unreadable": "no-weight",
        "out_of_bounds": "clip",
    }
    table = schema("weights", TWO, AGE, weight=weight, schema_version=5)
    text = "age,y,w\n" + "".join(f"40,1,{each}\n" for each in ("0", "0.0025", "2.5", "5", "7", "", "x", "-1"))
    return [*found, table_vector("weights", table, text)]


def refused_cells():
    """One cell for each policy `refuse`: no row of such a table is used."""
    parts = {
        "real": (real("c", 0, 10), ("", "x", "11", "-0.5")),
        "threshold": (feature("c", type="threshold", threshold=hexadecimal(1)), ("", "x")),
        "boolean": (feature("c", type="boolean", true=["1"], false=["0"], unknown="refuse"), ("", "2")),
        "category": (feature("c", type="category", values=["a"], unknown="refuse"), ("", "b", "A")),
        "date": (
            feature(
                "c", type="date", first="2024-01-01", last="2024-12-31", since="2024-01-01", parts=[],
                out_of_bounds="refuse",
            ),
            ("", "2024-1-1", "2025-01-01"),
        ),
    }  # fmt: skip
    found = []
    for kind, (part, cells) in parts.items():
        table = schema("refused", TWO, part, schema_version=3 if kind == "date" else 1)
        for cell in cells:
            try:
                of_row(table, {"c": cell, "y": "1"})
                raise AssertionError(f"{kind} {cell!r} is not refused")
            except RefusedError:
                found.append({"type": kind, "schema": canonical(table), "cell": cell})
    return found


# Section 2 and 3.

CERTIFICATE_REQUEST = """\
-----BEGIN CERTIFICATE REQUEST-----
MIH7MIGiAgEAMAwxCjAIBgNVBAMMAWEwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC
AAS9L6HnsFUHWli/ywQUIy2C3fCjFQsvgBOOvf6wBScj9RjXQs4XuFi10XNm7Hmq
cLLBBhMukmyc2Ep0mYpzDGZToDQwMgYJKoZIhvcNAQkOMSUwIzAhBgNVHREEGjAY
hhZyYWRvOi8vdmVjdG9ycy9wYXJ0eS9hMAoGCCqGSM49BAMCA0gAMEUCIDz4p/mi
06nI/BUD7WJPFz+G04jGHM9yfmP1PAsjOU7aAiEAieagkmevW9CIuniZYBqyv+Mc
IN/purEmgNZpBMKDAoA=
-----END CERTIFICATE REQUEST-----
"""


def fingerprints():
    found = []
    for name in ("federation", "a", "b"):
        key = base.public(name)
        found.append({"public_key": key.hex(), "key_id": sha(key).hex(), "digits": digits(key)})
    return found


def digits(data):
    text = f"{int.from_bytes(sha(data), 'big') % 10**30:030d}"
    return " ".join(text[place : place + 5] for place in range(0, 30, 5))


def joining():
    request = join_pb2.JoinRequest(
        federation="vectors",
        role=roster_pb2.ROLE_PARTY,
        name="a",
        signing_key=base.public("a"),
        certificate_request=CERTIFICATE_REQUEST.encode(),
        rows_at_least=100,
        made_at_unix_s=NOW,
    )
    made = payload(request)
    return {**base.describe("JoinRequest", signed("JoinRequest", "a", made, role="member")), "digits": digits(made)}


def records():
    return {
        "description": "docs/protocol.md, sections 2 to 4. Coordinates and numeric labels are in units of 2^-30.",
        "fingerprints": fingerprints(),
        "joining": joining(),
        "tables": [features_table(), *labels_tables()],
        "refused_cells": refused_cells(),
    }


FILES = {"records.json": records}

if __name__ == "__main__":
    for name, make in FILES.items():
        (HERE / name).write_text(base.text(make()))
