"""Texts that a query states: what its answer is for, and which epoch of rows it asks about."""

import re

MAX_PURPOSE = 200
"""The most characters of a purpose."""
PURPOSE_RULE = f"a purpose has 1 to {MAX_PURPOSE} printable characters, on one line, without outer spaces"


# Controls and separators but the space; characters without a shape, such as marks of direction; surrogates, those for
# private use, and noncharacters: as of Unicode 14.0, some with the rest of their blocks. The list is fixed, so that
# members with other versions of Python, which know other versions of Unicode, judge a text alike.
NOT_PRINTABLE = (
    *((0x0000, 0x001F), (0x007F, 0x00A0), (0x00AD, 0x00AD), (0x0600, 0x0605), (0x061C, 0x061C), (0x06DD, 0x06DD)),
    *((0x070F, 0x070F), (0x0890, 0x0891), (0x08E2, 0x08E2), (0x1680, 0x1680), (0x180E, 0x180E), (0x2000, 0x200F)),
    *((0x2028, 0x202F), (0x205F, 0x206F), (0x3000, 0x3000), (0xD800, 0xF8FF), (0xFDD0, 0xFDEF), (0xFEFF, 0xFEFF)),
    *((0xFFF0, 0xFFFB), (0xFFFE, 0xFFFF), (0x110BD, 0x110BD), (0x110CD, 0x110CD), (0x13430, 0x1343F)),
    *((0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE00FF), (0xF0000, 0x10FFFF)),
    *((plane << 16 | 0xFFFE, plane << 16 | 0xFFFF) for plane in range(1, 15)),
)
"""Ranges of code points that are in no purpose, both ends included."""
_PURPOSE = re.compile(f"[^{''.join(f'{chr(first)}-{chr(last)}' for first, last in NOT_PRINTABLE)}]+")


def is_purpose(text: str) -> bool:
    """Whether a text may be a purpose: none of its characters is in `NOT_PRINTABLE`, and no space is at its ends."""
    return len(text) <= MAX_PURPOSE and _PURPOSE.fullmatch(text) is not None and text == text.strip(" ")


MAX_EPOCH = 40
"""The most characters of an epoch's name."""
EPOCH_RULE = f"an epoch's name has 1 to {MAX_EPOCH} letters, digits, '.', '_', ':' or '-', such as 2026-11"
_EPOCH = re.compile(r"[A-Za-z0-9._:-]{1,40}")


def is_epoch(text: str) -> bool:
    """Whether a text may name an epoch of rows."""
    return _EPOCH.fullmatch(text) is not None
