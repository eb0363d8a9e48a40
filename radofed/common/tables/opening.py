"""Files as Arrow opens them."""

import os

import pyarrow as pa


def opened(path: str) -> pa.NativeFile:
    """The file for Arrow to read, which takes a name as text only if it is UTF-8. Raises OSError."""
    return pa.OSFile(os.fsencode(path), "r")
