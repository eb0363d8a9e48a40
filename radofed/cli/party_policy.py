"""`rado party policy`: policies to start from, by name."""

import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpcore.errors import ConfigurationError
from radobase.printing import in_lines
from radobase.reading import FileKind, read_text, read_toml, with_remedy
from radobase.writing import write_durably
from radofed.cli.output import Output, Result

if TYPE_CHECKING:
    from parties.named_policies import NamedPolicy

_KEPT = ("accepted_members", "learners", "studies", "smallest_cohort", "assumed_colluders", "required_witnesses")
"""What a named policy says nothing of, and leaves as it is; beside the tables `data` and `history`."""
_WHO = ("approvers", "users", "names")
"""Of `[approval]`: who decides, which stays as well."""
_NAMED_KEY = re.compile(r'^\s*"([0-9a-fA-F:]+)",?[ \t]*#[ \t]*(\S+)[ \t]*$', re.MULTILINE)
"""A key of a list with the name of its member beside it, as `rado party accept` writes it."""


def policy(
    _output: Output,
    name: Annotated[str, typer.Argument(help="Its name; none to list them.", metavar="[NAME]")] = "",
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="This node's configuration file, whose members stay.")
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Replace the policy file; the former one is kept beside it.")
    ] = False,
) -> Result:
    """Show a policy to start from, or write it: public-statistics, research-within-epsilon-1, ask-me-always, closed.

    Members, pinned learners, studies, who decides, [data] and [history] stay as they are in the party's policy file.
    What is answered, what is asked about and the limits are replaced, and the command says which settings go and come.
    """
    from parties.config import PartyConfig
    from parties.named_policies import NAMED, levels, named
    from parties.policy import Policy

    if not name:
        lines = [line for each in NAMED for line in (f"{each.name}: {each.summary}", "")]
        return Result({"policies": [each.name for each in NAMED]}, in_lines(lines[:-1]))
    found = named(name)
    if found is None:
        known = ", ".join(each.name for each in NAMED)
        raise ConfigurationError(f"no policy is called {name!r}; choose one of {known}")
    if config is None:
        if write:
            raise ConfigurationError("--write needs the --config of the party whose policy is replaced")
        before, names, file = {}, {}, None
    else:
        file = PartyConfig.load(config).policy
        Policy.load(file)
        kind = FileKind(with_remedy("give the party's policy"), limit_bytes=1 << 20)
        before, names = read_toml(file, kind), dict(_NAMED_KEY.findall(read_text(file, kind)))
    text, changed = policy_text(found, before, names), settings_changed(found, before)
    added = [] if file is None else settings_added(found, before)
    changes = [*changed.values(), *added]
    table = [
        {"function": each.words, "commands": each.commands, "level": level} for each, level in levels(found.policy)
    ]
    data = {
        "name": name,
        "toml": text,
        "gone": list(changed),
        "added": [each.removeprefix("new: ") for each in added],
        "changes": changes,
        "levels": table,
        "written": None if not write else str(file),
    }
    if not write or file is None:
        return Result(data, in_lines([*text.splitlines(), *(f"# {each}" for each in changes)]))
    kept = _unused(file)
    shutil.copy2(file, kept)
    write_durably(file, text.encode())
    Policy.load(file)
    lines = [f"{file}: {found.title}; the former policy is {kept}", *changes]
    lines.append("a running node follows it after: rado party reload --config " + str(config))
    return Result(data, in_lines(lines))


def _unused(file: Path) -> Path:
    """Where the former policy is kept: no file is there yet."""
    names = (f"{file.name}.before{'' if n == 1 else f'-{n}'}" for n in count(1))
    return next(kept for name in names if not (kept := file.with_name(name)).exists())


def policy_text(found: "NamedPolicy", kept: Mapping[str, Any], names: Mapping[str, str] | None = None) -> str:
    """policy.toml of a named policy. kept: the keys of another one, of which some stay. names: whose keys they are."""
    settings: dict[str, Any] = {**{key: kept[key] for key in _KEPT if key in kept}, **found.settings}
    who = {key: value for key, value in kept.get("approval", {}).items() if key in _WHO}
    if who:
        settings["approval"] = {**settings.get("approval", {}), **who}
    settings |= {key: kept[key] for key in ("data", "history") if key in kept}
    summary = "".join(f"# {line}\n" for line in _wrapped(found.summary))
    head = f"# {found.title}: docs/policies/{found.name}.md. Written by rado party policy {found.name}.\n#\n{summary}"
    members = "".join(
        f"  {json.dumps(key)},{f'  # {names[key]}' if names and key in names else ''}\n"
        for key in settings.pop("accepted_members", ())
    )
    listed = f"accepted_members = [\n{members}]\n" if members else ""
    return f"{head}\n{listed}" + "".join(f"{line}\n" for line in _toml(settings))


def settings_changed(found: "NamedPolicy", before: Mapping[str, Any]) -> dict[str, str]:
    """The former policy's settings that the named one changes, as lines of TOML, each with a sentence about it.

    One that stands in the former file as it would be without it, and is not in the new one, changes nothing.
    """
    from parties.policy import Policy

    after, unset = dict(_flat(found.settings)), dict(_flat(Policy().model_dump()))
    changed = {}
    for key, value in _flat(before):
        kept = key.partition(".")[0] in (*_KEPT, "data", "history")
        decides = key.startswith("approval.") and key.partition(".")[2] in _WHO
        if kept or decides or _is_same(after.get(key, unset.get(key)), value):
            continue
        line = f"{key} = {_line(value)}"
        changed[line] = (
            f"changed: {key} = {_line(after[key])}, before {_line(value)}" if key in after else f"gone: {line}"
        )
    return changed


def settings_added(found: "NamedPolicy", before: Mapping[str, Any]) -> list[str]:
    """A sentence about each setting of the named policy that the former one does not have, and that changes it."""
    from parties.policy import Policy

    known, unset = dict(_flat(before)), dict(_flat(Policy().model_dump()))
    return [
        f"new: {key} = {_line(value)}"
        for key, value in _flat(found.settings)
        if key not in known and not _is_same(unset.get(key), value)
    ]


def _is_same(one: Any, other: Any) -> bool:
    """Whether two values of one setting mean the same: decimals may be written in several ways."""
    if one == other:
        return True
    try:
        return isinstance(one, str) and isinstance(other, str) and Fraction(one) == Fraction(other)
    except ValueError:
        return False


def _flat(table: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def _toml(table: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Lines of a TOML table: values first, then the tables in it."""
    tables = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    lists = {key: value for key, value in table.items() if _is_of_tables(value)}
    for key, value in table.items():
        if key not in tables and key not in lists:
            yield f"{key} = {_value(value)}"
    for key, value in tables.items():
        yield f"\n[{path}{_key(key)}]"
        yield from _toml(value, f"{path}{_key(key)}.")
    for key, values in lists.items():
        for value in values:
            yield f"\n[[{path}{_key(key)}]]"
            yield from _toml(value, f"{path}{_key(key)}.")


def _is_of_tables(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str) and any(isinstance(x, Mapping) for x in value)


def _key(key: str) -> str:
    return key if key.isascii() and key.replace("_", "").replace("-", "").isalnum() else json.dumps(key)


def _value(value: Any) -> str:
    if isinstance(value, list) and value and all(isinstance(each, str) for each in value):
        inside = "".join(f"\n  {json.dumps(each)}," for each in value)
        return f"[{inside}\n]" if len(value) > 3 else json.dumps(value)
    return json.dumps(value)


def _line(value: Any) -> str:
    """A value on one line."""
    return json.dumps(value)


def _wrapped(text: str, width: int = 116) -> list[str]:
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + len(word) >= width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines
