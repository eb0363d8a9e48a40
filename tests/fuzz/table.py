"""Every target of fuzzing, by name."""

from functools import cache

from tests.fuzz import backups, databases, files, handlers, messages, tables, texts
from tests.fuzz.target import Target

NAMES_OF = (messages, texts, files, databases, backups, tables, handlers)


@cache
def all_targets() -> dict[str, Target]:
    """The targets. Making them writes the templates of databases and signs the messages of the small federation."""
    found = [target for module in NAMES_OF for target in module.targets()]
    named = {target.name: target for target in found}
    assert len(named) == len(found), "two targets have one name"
    return named
