"""Texts of a party's table that its schema does not list, and a draft of the tables that recode them."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dpcore.records.encoding import Texts, WantedColumn, sources
from dpcore.records.features import listed_texts
from dpcore.records.shared_schema import SharedSchema
from dpcore.records.texts import Form, form_of
from radobase.printing import amount, json_text
from radobase.tables.recoding import Recode
from radobase.tables.tables import RowsRead, TableSource, open_table, read_blocks

UNDECIDED = "?"
"""What a draft writes where a person has to decide. A recode with it is refused."""
_MOST_LISTED = 100
_ALIKE = form_of(["nfc", "trim", "case"])
# Ways to write what is true and false, in the same order.
_TRUE, _FALSE = ("true", "yes", "t", "y", "1"), ("false", "no", "f", "n", "0")
_PAIRS = (("true", "false"), ("positive", "negative"), ("happened", "censored"))


@dataclass(frozen=True)
class Unlisted:
    """Texts of one column that the schema does not list."""

    column: str
    """The schema's name for it."""
    own: str
    """The table's."""
    cells: Mapping[str, int]
    """In how many cells each text is, the most frequent first."""
    drafts: Mapping[str, str]
    """The schema's text for those that a draft has one for."""
    listed: tuple[str, ...]
    """What the schema lists."""

    def lines(self) -> Iterator[str]:
        """Lines of `party.toml` that recode them."""
        if self.own != self.column:
            yield f"[recode.columns.{_key(self.column)}]"
            yield f"column = {_quoted(self.own)}"
        yield f"[recode.columns.{_key(self.column)}.cells]   # the schema's: {', '.join(map(_quoted, self.listed))}"
        for text, count in list(self.cells.items())[:_MOST_LISTED]:
            target = self.drafts.get(text, UNDECIDED)
            yield f"{_quoted(text)} = {_quoted(target)}   # {amount(count, 'cell')}"
        if len(self.cells) > _MOST_LISTED:
            yield f"# and {len(self.cells) - _MOST_LISTED} texts more, in fewer cells each"


def unlisted(
    table: TableSource, schema: SharedSchema, recode: Recode | None, progress: RowsRead | None = None
) -> list[Unlisted]:
    """The columns that have such texts, in the schema's order. recode: what is recoded already.

    Dates have no list, and a category with a prefix has one of beginnings; both are left out. Raises DataError as
    `read_blocks` does.
    """
    form, wanted = form_of(schema.first.texts), _compared(schema)
    own = {name: name if recode is None else recode.own(WantedColumn(name, "texts")).column for name in wanted}
    known = {name: {form(text) for text in listed} for name, listed in wanted.items()}
    if recode is not None:
        known |= {name: known[name] | {*recode.columns[name].cells} for name in known if name in recode.columns}
    columns = {name: WantedColumn(own[name], "texts") for name in wanted}
    found: dict[str, Counter[str]] = {name: Counter() for name in wanted}
    for block in read_blocks(open_table(table), list(columns.values()), progress):
        for name, column in columns.items():
            cells = block.cells[column]
            assert isinstance(cells, Texts), "the column is wanted as texts"
            rows = np.bincount(cells.codes[cells.codes >= 0], minlength=len(cells.texts)).tolist()
            is_listed = _listed_by(known[name], form, booleans=cells.booleans)
            found[name].update(
                {text: count for text, count in zip(cells.texts, rows, strict=True) if count and not is_listed(text)}
            )
    return [
        Unlisted(name, own[name], dict(counts.most_common()), _drafts(counts, wanted[name], schema, name), wanted[name])
        for name, counts in found.items()
        if counts
    ]


def _compared(schema: SharedSchema) -> dict[str, tuple[str, ...]]:
    """By column that is read as texts alone, what the schema lists for it."""
    kinds: dict[str, set[str]] = {}
    for source in sources(schema.first, label=True, others=schema.others):
        kinds.setdefault(source.column, set()).add(source.kind)
    parts = [*schema.first.features, *(each.label for each in schema.schemas)]
    has_prefix = {part.column for part in parts if getattr(part, "prefix", None)}
    names = [name for name, kind in kinds.items() if kind == {"texts"} and name not in has_prefix]
    found = {
        name: tuple(
            dict.fromkeys(
                text for each in schema.schemas for text in listed_texts(each.label, schema.first.features, name)
            )
        )
        for name in names
    }
    return {name: listed for name, listed in found.items() if listed}


def _listed_by(known: set[str], form: Form, *, booleans: bool) -> Callable[[str], bool]:
    if not booleans:
        return lambda text: form(text) in known
    folded = {text.casefold() for text in known}
    return lambda text: form(text).casefold() in folded


def _drafts(texts: Counter[str], listed: Sequence[str], schema: SharedSchema, column: str) -> dict[str, str]:
    """The listed text of those that differ from one alone by case, or that say true or false where it does.

    A draft: people read it before it is used.
    """
    alike: dict[str, list[str]] = {}
    for text in listed:
        alike.setdefault(_ALIKE(text), []).append(text)
    said = _said(schema, column)
    found = {}
    for text in texts:
        same = alike.get(_ALIKE(text), [])
        target = same[0] if len(same) == 1 else said.get(_ALIKE(text))
        if target is not None:
            found[text] = target
    return found


def _said(schema: SharedSchema, column: str) -> dict[str, str]:
    """What usual words for true and false are in a column of two values: none if the schema's words are others."""
    for part in (*schema.first.features, *(each.label for each in schema.schemas)):
        for keys in _PAIRS:
            pair: list[tuple[str, ...]] = [tuple(getattr(part, key, None) or ()) for key in keys]
            if column in (part.column, *getattr(part, "columns", ())) and all(len(texts) == 1 for texts in pair):
                true, false = (texts[0] for texts in pair)
                if _ALIKE(true) in _TRUE and _ALIKE(false) in _FALSE:
                    return dict.fromkeys(_TRUE, true) | dict.fromkeys(_FALSE, false)
    return {}


def draft(found: Sequence[Unlisted]) -> str:
    """What to add to `party.toml`; empty if the schema lists all texts."""
    blocks = ["\n".join(each.lines()) for each in found]
    return "\n\n".join(blocks)


def _quoted(text: str) -> str:
    return json_text(text)


def _key(name: str) -> str:
    is_bare = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    return name if is_bare else _quoted(name)
