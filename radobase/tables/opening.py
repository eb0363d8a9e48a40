"""Files as Arrow opens them, and what it says of columns that it cannot read."""

import os

import pyarrow as pa


def opened(path: str) -> pa.NativeFile:
    """The file for Arrow to read, which takes a name as text only if it is UTF-8. Raises OSError."""
    return pa.OSFile(os.fsencode(path), "r")


def invalid(kind: pa.DataType, remedy: str) -> str:
    """The sentence on a column of this type that holds something else. remedy: what to do if it is of texts."""
    if pa.types.is_decimal(kind):
        # Such as a database's integers of 128 bits, which have up to 39 digits.
        return f"holds a number beyond its type {kind}; convert the column, such as by CAST(... AS DOUBLE)"
    if pa.types.is_dictionary(kind):
        return f"holds a text that is not UTF-8, or a code without a value; {remedy}"
    return f"holds a text that is not UTF-8; {remedy}"
