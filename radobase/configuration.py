"""Configuration files in TOML: unknown keys are refused, key names have units, paths are relative to the file."""

import difflib
import re
from pathlib import Path
from typing import Annotated, Any, Self, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError, ValidationInfo

from dpcore.errors import ConfigurationError
from dpcore.records.texts import parse_toml
from radobase.reading import FileKind, read_toml, with_remedy

# A policy that accepts a thousand members has 90 KB. The parser of TOML takes a second for a megabyte.
_FILE = FileKind(with_remedy("correct the file"), limit_bytes=256 << 10, decides=True)
_MOST_FAULTS = 20


def _relative_to_file(path: Path, info: ValidationInfo) -> Path:
    if "\0" in str(path):
        raise ValueError("a path cannot have a NUL character; correct it")
    base = (info.context or {}).get("directory")
    try:
        return path if base is None else Path(base) / path.expanduser()
    except RuntimeError as error:
        raise ValueError("the user's home directory is not known; write the whole path") from error


ConfigPath = Annotated[Path, AfterValidator(_relative_to_file)]
"""A path that is read relative to the directory of the configuration file."""


class Configuration(BaseModel):
    """Base of all configuration: frozen. An unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a TOML file. Raises ConfigurationError with its faults and the valid keys nearest to unknown ones."""
        data = read_toml(path, _FILE)
        try:
            return cls.model_validate(data, context={"directory": path.resolve().parent})
        except ValidationError as error:
            faults = [_describe(cls, fault) for fault in error.errors()[:_MOST_FAULTS]]
            if error.error_count() > _MOST_FAULTS:
                faults.append(f"and {error.error_count() - _MOST_FAULTS} more")
            raise ConfigurationError(f"{path}: {'; '.join(faults)}") from error

    @classmethod
    def of_text(cls, text: str) -> Self | None:
        """The configuration that a file with this text would be, with paths as written; None if it would be none."""
        try:
            return cls.model_validate(parse_toml(text))
        except ValueError:
            return None


def read_keys(path: Path) -> frozenset[str]:
    """The keys of a TOML file. Raises ConfigurationError if it cannot be read."""
    return frozenset(read_toml(path, _FILE))


def _describe(model: type[BaseModel], fault: Any) -> str:
    key = ".".join(str(part) for part in fault["loc"])
    match fault["type"]:
        case "extra_forbidden":
            known = _keys_at(model, fault["loc"][:-1])
            near = difflib.get_close_matches(str(fault["loc"][-1]), known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(sorted(known))}"
            return f"unknown key {key!r}; {hint}"
        case "missing":
            return f"{key!r} is missing; add it"
        case _:
            return f"{key!r}: {fault['msg']}" if key else str(fault["msg"])


def _keys_at(model: type[BaseModel], location: tuple[Any, ...]) -> list[str]:
    for part in location:
        field = next((f for name, f in model.model_fields.items() if str(part) in (name, f.alias)), None)
        annotation = field.annotation if field else None
        tables = [kind for kind in (annotation, *get_args(annotation)) if _is_table(kind)]
        if not tables:
            break
        model = tables[0]
    return [field.alias or name for name, field in model.model_fields.items()]


def _is_table(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


# Network addresses in configuration files.


_TARGET = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s\[\]:/]+):(?P<port>[0-9]{1,5})")


def split_target(target: str) -> tuple[str, int]:
    """Host, without the brackets of an IPv6 address, and port. Raises ValueError if it is not "host:port"."""
    match = _TARGET.fullmatch(target)
    if match is None or not 0 < int(match["port"]) < 1 << 16:
        raise ValueError('use "host:port", an IPv6 address in brackets, a port from 1 to 65535')
    return check_end(match["host"]).strip("[]"), int(match["port"])


def check_end(host: str) -> str:
    """The host itself. Raises ValueError if it ends with a dot, as those in certificates never do."""
    if host.endswith("."):
        raise ValueError(f"leave the dot at the end of {host} out: the certificate names the host without it")
    return host
