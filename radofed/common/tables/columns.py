"""Arrow columns as cells that a schema can encode: numbers as doubles, texts as codes of the distinct texts."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpcore.records.encoding import CellError, Cells, Numbers, Texts, WantedColumn
from dpcore.records.features import TRIMMED, value_text


def cells(array: pa.Array, source: WantedColumn) -> Cells:
    """An Arrow column as the cells that `source` needs. Raises the same errors as `numbers` and `texts`."""
    return numbers(array, source.column) if source.kind == "numbers" else texts(array, source.column)


def numbers(array: pa.Array, column: str) -> Numbers:
    """An Arrow column as doubles. Texts are parsed as decimal numbers; empty texts and nulls are missing.

    Raises CellError if a text is not a number or the column has a type that is not numeric.
    """
    kind = array.type
    if pa.types.is_dictionary(kind):
        return numbers(array.dictionary_decode(), column)
    if is_text(kind):
        trimmed = _trim(array)
        array = pc.if_else(pc.equal(trimmed, ""), None, trimmed)
        try:
            array = array.cast(pa.float64())
        except pa.ArrowInvalid:
            array = pa.array([_number(cell, row, column) for row, cell in enumerate(array.to_pylist())], pa.float64())
    elif pa.types.is_boolean(kind):
        array = array.cast(pa.int8()).cast(pa.float64())
    elif pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind):
        array = array.cast(pa.float64(), safe=False)
    else:
        raise CellError(None, column, f"the column is of type {kind}, not a number; convert it")
    if not array.null_count:
        return Numbers(array.to_numpy(), np.zeros(len(array), dtype=np.bool_))
    return Numbers(array.fill_null(0.0).to_numpy(), array.is_null().to_numpy(zero_copy_only=False))


def texts(array: pa.Array, column: str) -> Texts:
    """An Arrow column as codes of its distinct texts (dpcore.records.features.value_text).

    Empty texts and nulls are missing.

    The texts are in the order of their first occurrence. Raises CellError if the column has a nested or binary type.
    """
    kind = array.type
    if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        raise CellError(None, column, f"the column is of type {kind}, which has no texts; convert it")
    if pa.types.is_dictionary(kind):
        if not is_text(kind.value_type):
            return texts(array.dictionary_decode(), column)
        # Only texts that occur are examined: the dictionary may be that of the whole file.
        used = array.indices.dictionary_encode()
        of_used = texts(array.dictionary.take(used.dictionary), column)
        places = np.append(of_used.codes, -1)
        return Texts(places[_codes(used)], of_used.texts)
    encoded = (_trim(array) if is_text(kind) else array).dictionary_encode()
    found = tuple("" if value is None else value_text(value) for value in encoded.dictionary.to_pylist())
    # One more place, for nulls; empty texts have the same code.
    places = np.array([*(place if text else -1 for place, text in enumerate(found)), -1], dtype=np.int64)
    return Texts(places[_codes(encoded)], found)


def _codes(encoded: pa.DictionaryArray) -> NDArray[np.int64]:
    """The index of each value in the dictionary; for nulls the index after its end."""
    indices = encoded.indices
    if indices.null_count:
        indices = indices.fill_null(len(encoded.dictionary))
    return np.asarray(indices.to_numpy(), dtype=np.int64)


def is_text(kind: pa.DataType) -> bool:
    """Whether a column of this type holds texts that are not dictionary-encoded."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _trim(array: pa.Array) -> pa.Array:
    # Trimmed bytewise, which is exact in UTF-8 because the trimmed characters are ASCII.
    return pc.ascii_trim(array.cast(pa.string()), characters=TRIMMED)


def _number(cell: str | None, row: int, column: str) -> float | None:
    """One cell as a number, for blocks that Arrow's parser refused: finds the bad cell, or reads other digits."""
    if cell is None:
        return None
    try:
        if "_" in cell:  # Python's own notation for literals, not a decimal number
            raise ValueError
        return float(cell)
    except ValueError:
        sentence = "is not a number; write it with a decimal point, or leave the cell empty"
        raise CellError(row, column, sentence) from None
