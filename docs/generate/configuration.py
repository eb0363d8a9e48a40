"""The reference of configuration keys, from the models that read the files.

A key's meaning is the docstring that follows its attribute in the source.
"""

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from datetime import date
from fractions import Fraction
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from coordinator.config import CoordinatorConfig
from docs.generate.tables import code, table
from learner.accepted_parties import AcceptedParties
from learner.config import LearnerConfig
from parties.config import PartyConfig
from parties.policy import Policy

FILES: Mapping[str, type[BaseModel]] = {
    "coordinator.toml": CoordinatorConfig,
    "party.toml": PartyConfig,
    "policy.toml": Policy,
    "learner.toml": LearnerConfig,
    "parties.toml": AcceptedParties,
}
_TYPES = {
    str: "text",
    int: "integer",
    float: "number",
    bool: "boolean",
    Path: "path",
    Fraction: "exact number",
    date: "date",
}
GROUPED = 10_000
"""Numbers from here on are written with groups of digits."""
INTRODUCTION = """# Configuration keys

This page is generated from the models that read the files.

- The files are TOML. An unknown key is an error that names the nearest known key.
- Paths are relative to the directory of the file.
- No file holds a secret. The files name the files that do.
- An exact number is a decimal in quotation marks, such as `"0.5"` or `"1e-6"`.

[Operating](../operating.md) explains scopes, limits and signals. `deploy/samples` has a sample of each file.
"""


def configuration_page() -> str:
    """The page of all configuration files."""
    return "\n".join([INTRODUCTION, *(_section(file, model) for file, model in FILES.items())])


def _section(file: str, model: type[BaseModel]) -> str:
    header = ("key", "value", "default", "meaning")
    summary = inspect.cleandoc(model.__doc__ or "")
    return f"## {file}\n\n{summary}\n\n{table(header, _rows(model, ''))}"


def _rows(model: type[BaseModel], prefix: str) -> Iterator[list[str]]:
    meanings = attribute_docstrings(model)
    for name, field in model.model_fields.items():
        key = f"{prefix}{field.alias or name}"
        nested, place = _nested(field.annotation, key)
        if nested is None:
            yield [code(key), _value(field), _default(field), meanings[name]]
        else:
            yield [code(place), "table", "required" if field.is_required() else "", meanings[name]]
            yield from _rows(nested, f"{place}.")


def attribute_docstrings(model: type[BaseModel]) -> dict[str, str]:
    """Docstring of each attribute, inherited ones included. An attribute without one is a KeyError where it is used."""
    found: dict[str, str] = {}
    for kind in reversed([kind for kind in model.__mro__ if issubclass(kind, BaseModel) and kind is not BaseModel]):
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
        assert isinstance(definition, ast.ClassDef)
        for statement, following in zip(definition.body, definition.body[1:], strict=False):
            match statement, following:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(docstring))),
                ):
                    found[name] = inspect.cleandoc(docstring)
    return found


def _nested(annotation: Any, key: str) -> tuple[type[BaseModel] | None, str]:
    """The model of a table and how its keys begin: `limits`, `limits.columns.NAME`, `learners[]`."""
    kinds = _alternatives(annotation)
    (kind,) = kinds if len(kinds) == 1 else (None,)
    if _is_model(kind):
        return kind, key
    for origin, place in ((dict, f"{key}.NAME"), (tuple, f"{key}[]")):
        if get_origin(kind) is origin:
            return next(filter(_is_model, get_args(kind)), None), place
    return None, key


def _is_model(kind: Any) -> bool:
    return inspect.isclass(kind) and issubclass(kind, BaseModel)


def _alternatives(annotation: Any) -> list[Any]:
    """The types of a union without None; the type itself where it is no union."""
    if get_origin(annotation) in (Union, UnionType):
        return [part for part in get_args(annotation) if part is not NoneType]
    return [annotation]


def _value(field: FieldInfo) -> str:
    kinds = _alternatives(field.annotation)
    bounds = [
        f"{word} {bound:,}"
        for metadata in field.metadata
        for name, word in (("ge", "at least"), ("gt", "above"), ("le", "at most"), ("lt", "below"))
        if (bound := getattr(metadata, name, None)) is not None
    ]
    return ", ".join([", or ".join(map(_type, kinds)), *bounds])


def _type(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return ", ".join(code(f'"{word}"') for word in get_args(kind))
    if get_origin(kind) is tuple:
        (kind, _) = get_args(kind)
        return f"list of: {_type(kind)}"
    if _is_model(kind):
        return "table"
    if get_args(kind):  # Annotated
        return _type(get_args(kind)[0])
    return _TYPES[kind]


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    default = field.get_default(call_default_factory=True)
    match default:
        case None | ():
            return "none"
        case bool():
            return code(str(default).lower())
        case int() | float():
            return code(str(default) if default < GROUPED else f"{default:_}")
        case Fraction():
            return code(f'"{float(default):g}"'.replace("e-0", "e-"))
        case _:
            return code(f'"{default}"')
