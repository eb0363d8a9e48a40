"""The file of a training: what it was started with, so that a later console can go on with it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeGuard

from dpcore.errors import ConfigurationError
from radobase.files.reading import FileKind, parse_json, read_text, with_remedy

FORMAT = "radofed-training"
FORMAT_VERSION = 2
_REMEDY = "train again, or by the command"
_FILE = FileKind(with_remedy(_REMEDY), limit_bytes=1 << 20)


@dataclass(frozen=True)
class TrainingFile:
    """given: texts of the options of `rado learner train`, by name. warning: of the estimator, once it has a model."""

    estimator: str
    given: Mapping[str, str]
    warning: str = ""

    def to_bytes(self) -> bytes:
        """JSON in UTF-8."""
        content = {"format": FORMAT, "format_version": FORMAT_VERSION, "estimator": self.estimator}
        return (json.dumps({**content, "given": dict(self.given), "warning": self.warning}, indent=2) + "\n").encode()

    @classmethod
    def load(cls, path: Path) -> Self:
        """Raises ConfigurationError if it is no such file."""
        content = parse_json(read_text(path, _FILE), path, _FILE)
        estimator, given, warning = (content.get(key) for key in ("estimator", "given", "warning"))
        is_known = (content.get("format"), content.get("format_version")) == (FORMAT, FORMAT_VERSION)
        if is_known and isinstance(estimator, str) and isinstance(warning, str) and _are_texts(given):
            return cls(estimator, given, warning)
        raise ConfigurationError(f"{path}: no training of this version of radofed; {_REMEDY}")


def _are_texts(given: object) -> TypeGuard[dict[str, str]]:
    return isinstance(given, dict) and all(isinstance(text, str) for text in given.values())
