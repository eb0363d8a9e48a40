"""The purpose of a query: what a learner says that its answer is for. Imports nothing: plans check one, too."""

MAX_PURPOSE = 200
"""The most characters of a purpose."""
PURPOSE_RULE = f"a purpose has 1 to {MAX_PURPOSE} printable characters, on one line, without outer spaces"


def is_purpose(text: str) -> bool:
    """Whether a text may be a purpose.

    Printable as Python says it: no character of Unicode's categories C (controls, marks of direction, surrogates,
    unassigned) and Z (separators), but the space.
    """
    return 0 < len(text) <= MAX_PURPOSE and text.isprintable() and text == text.strip()
