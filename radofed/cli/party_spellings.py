"""`rado party spellings`: what a party's table writes otherwise than its schema."""

from radobase.printing import amount, in_lines
from radofed.cli.framework import ConfigOption
from radofed.cli.output import Output, Result


def spellings(_output: Output, config: ConfigOption) -> Result:
    """List the texts of the party's table that its schema does not list, and draft what recodes them.

    Prints tables to add to party.toml. A draft has the schema's text where one differs by case alone, or says true or
    false; elsewhere it has "?", which no node takes: write the schema's text, or "" for an empty cell. Nothing leaves
    this machine.
    """
    from parties.config import PartyConfig
    from parties.data.dataset import recode_of
    from parties.data.spellings import UNDECIDED, draft, unlisted
    from radobase.schema_files import load_shared

    loaded = PartyConfig.load(config)
    schema = load_shared(loaded.schema_file)
    found = unlisted(loaded.table, schema, recode_of(loaded, schema))
    text = draft(found)
    open_ = sum(len(each.cells) - len(each.drafts) for each in found)
    data = {
        "columns": [
            {"column": each.column, "own": each.own, "cells": each.cells, "drafts": each.drafts} for each in found
        ],
        "toml": text,
        "undecided": open_,
    }
    if not found:
        return Result(data, "the schema lists every text of the table")
    head = [
        f"# Add this to {config}, check each line, and replace each {UNDECIDED!r}.",
        f"# {amount(open_, 'text')} without a draft.",
        "",
    ]
    return Result(data, in_lines([*head, *text.splitlines()]))
