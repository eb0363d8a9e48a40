"""Generated parts of pages that are written by hand, each between two comments."""

_BEGIN = "<!-- {name}: written by python -m docs.generate -->"
_END = "<!-- end of {name} -->"


def with_part(page: str, name: str, part: str) -> str:
    """The page with another text between the comments of this name. Raises ValueError if it lacks them."""
    begin, end = _BEGIN.format(name=name), _END.format(name=name)
    before, found, rest = page.partition(begin)
    _, ended, after = rest.partition(end)
    if not found or not ended:
        raise ValueError(f"the page has no part {name!r}: write {begin} and {end} where it belongs")
    return f"{before}{begin}\n\n{part.strip()}\n\n{end}{after}"
