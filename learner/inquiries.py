"""Saved inquiries: a file beside a release says which inquiry it answers, so that it is shown again at no cost.

For the release directory 0123... the file is 0123....inquiry.json. It holds no answer and proves nothing: the inquiry
must ask exactly what the signed query of the release asked.
"""

from pathlib import Path
from typing import Any

from dpcore.errors import ConfigurationError
from dpcore.evaluation.descriptive.comparison import Compare
from dpcore.evaluation.descriptive.correlation import Correlate
from dpcore.evaluation.descriptive.crosstab import Crosstab
from dpcore.evaluation.descriptive.description import Describe
from dpcore.evaluation.descriptive.inquiry import CountsInquiry, Inquiry
from dpcore.evaluation.descriptive.levels import Levels
from dpcore.evaluation.descriptive.result import Result
from dpcore.evaluation.descriptive.survival import Survival
from learner.estimates import estimates_of
from learner.release import Release
from radobase.printing import json_text
from radobase.reading import FileKind, read_json, with_remedy
from radobase.writing import write_durably

FORMAT = "radofed-inquiry"
FORMAT_VERSION = 1
KINDS: dict[str, type[Inquiry]] = {
    kind.name: kind for kind in (Describe, Crosstab, Compare, Correlate, Survival, Levels)
}

_OTHER = "the release answers another query than this inquiry: give the directory that the command named"
_SUFFIX = ".inquiry.json"
_FILE = FileKind(with_remedy("ask again with --reuse and the same options, which costs nothing"), limit_bytes=1 << 20)


def inquiry_file(release: Path) -> Path:
    """The file beside a release's directory."""
    return release.with_name(f"{release.name}{_SUFFIX}")


def save_inquiry(inquiry: Inquiry, release: Path) -> None:
    """Write it beside the directory of the release that answers it, also before that exists."""
    content = {"format": FORMAT, "format_version": FORMAT_VERSION, **inquiry.to_dict()}
    release.parent.mkdir(parents=True, exist_ok=True)
    write_durably(inquiry_file(release), (json_text(content, indent=2) + "\n").encode())


def load_inquiry(release: Path) -> Inquiry:
    """The inquiry that a release's directory answers. Raises ConfigurationError without a file, or for a wrong one."""
    path = inquiry_file(release)
    content = read_json(path, _FILE)
    if (content.pop("format", None), content.pop("format_version", None)) != (FORMAT, FORMAT_VERSION):
        raise ConfigurationError(f"{path}: no inquiry of this version of radofed; give the options again, with --reuse")
    return _inquiry_of(content, path)


def _inquiry_of(content: dict[str, Any], path: Path) -> Inquiry:
    kind = KINDS.get(str(content.pop("inquiry", "")))
    if kind is None:
        raise ConfigurationError(f"{path}: no known inquiry; give the options again, with --reuse")
    try:
        fields: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in content.items()
        }
        return kind(**fields)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"{path}: malformed ({error}); give the options again, with --reuse") from error


def read_again(directory: Path) -> tuple[Result, Release]:
    """What a saved release answers, read by the inquiry that asked for it; nothing is asked.

    Raises ConfigurationError if they do not belong together.
    """
    inquiry, release = load_inquiry(directory), Release.load(directory)
    return result_of(inquiry, release), release


def result_of(inquiry: Inquiry, release: Release) -> Result:
    """A release, read by the inquiry that asked for it. Raises ConfigurationError if it asked for another one."""
    schema, query = release.schema, release.query
    match inquiry:
        case CountsInquiry():
            if tuple(query.kind.batch) != inquiry.layout(schema).batch:
                raise ConfigurationError(_OTHER)
            found = inquiry.read(schema, estimates_of(release))
        case Correlate():
            asked, moments = (float(inquiry.norm_bound(schema)), inquiry.feature_map(schema)), release.moments
            if (moments.norm_bound, query.feature_map) != asked:
                raise ConfigurationError(_OTHER)
            found = inquiry.read_moments(schema, moments)
        case _:
            raise AssertionError(inquiry)
    return found.with_privacy(release.statement)
