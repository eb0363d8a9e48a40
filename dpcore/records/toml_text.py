"""TOML texts, with a bound on the parser's work."""

import re
import tomllib
from typing import Any

MOST_KEY_PARTS = 32

# What may hold dots outside a key: texts and comments. Possessive, and an unclosed text reaches to the end, so that the
# time is linear; the parser refuses such a text.
_TEXT = re.compile(
    r'"""(?:\\.|[^\\"]|"(?!""))*+(?:""")?|\'\'\'(?:[^\']|\'(?!\'\'))*+(?:\'\'\')?'
    r'|"(?:\\.|[^"\\\n])*+"?|\'[^\'\n]*+\'?|#[^\n]*+',
    re.DOTALL,
)
_LONG_KEY = re.compile(rf"(?<![\w-])(?:[\w-]++[ \t]*+\.[ \t]*+){{{MOST_KEY_PARTS}}}")


def parse_toml(text: str) -> dict[str, Any]:
    """The table of a TOML text. Raises ValueError if it is none or a key has more than 32 parts, RecursionError.

    The parser takes time and memory quadratic in the parts of a key: a gigabyte for a text of 32 KB.
    """
    plain = _TEXT.sub(lambda found: "" if found.group().startswith("#") else "s", text)
    if _LONG_KEY.search(plain):
        raise ValueError(f"a key has more than {MOST_KEY_PARTS} parts")
    return tomllib.loads(text)
