"""The file of a model: one JSON object with a digest of all that it says."""

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpcore.errors import ModelError, RadofedError
from dpcore.numbers.rationals import exact_number
from dpcore.queries.statement import PrivacyStatement
from dpcore.records.feature_map import FeatureMap
from dpcore.records.schema import Schema
from learner.decisions import decision_of
from learner.uncertainty import calibration_from, covariance_from_text, covariance_text
from radobase.printing import json_text
from radobase.reading import FileKind, read_json, with_remedy
from radobase.writing import write_durably

if TYPE_CHECKING:
    from learner.model import Model

FORMAT = "radofed-model"
FORMAT_VERSION = 1
MODEL = FileKind(with_remedy("give the file that `train` wrote, or train again", ModelError), limit_bytes=32 << 20)
_DOMAIN = b"rado.v1/model\0"
_MALFORMED = (RadofedError, ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError)


def write(model: "Model", path: Path) -> None:
    """Write a model atomically. Raises ModelError."""
    content = to_json(model)
    content["digest"] = digest_of(content)
    try:
        write_durably(path, (json_text(content, indent=2, allow_nan=False) + "\n").encode())
    except OSError as error:
        raise ModelError(f"{path}: cannot be written ({error.strerror}); choose another place") from error


def read(path: Path, kind: "type[Model]") -> "Model":
    """Read a model. Raises ModelError if the file is not a model, has an unknown format, or was changed."""
    content = read_json(path, MODEL)
    if content.get("format") != FORMAT:
        raise ModelError(f"{path}: not a model of radofed; give the file that `train` wrote")
    if content.get("format_version") != FORMAT_VERSION:
        found = content.get("format_version")
        raise ModelError(f"{path}: format version {found!r} is not {FORMAT_VERSION}; update radofed")
    claimed = content.pop("digest", None)
    try:
        found_digest = digest_of(content)
        if claimed != found_digest:
            raise ModelError(
                f"{path}: the digest is {found_digest} and the file says {claimed}: the model was changed after it "
                "was saved; train it again"
            )
        return from_json(content, kind)
    except ModelError:
        raise
    except _MALFORMED as error:
        raise ModelError(f"{path}: malformed ({error}); train it again") from error


def to_json(model: "Model") -> dict[str, Any]:
    """What a file says of a model, without the digest."""
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "learner": model.estimator,
        "schema": model.schema.canonical_bytes().decode(),
        # In order, with their names, for readers and other languages.
        "theta": [[name, value] for name, value in zip(model.names, model.theta.T.tolist(), strict=True)],
        "release_digest": model.release_digest.hex(),
        "statement": model.statement.to_dict(),
        **({} if model.held_back is None else {"held_back": str(model.held_back)}),
        **({} if model.feature_map is None else {"feature_map": model.feature_map.to_list()}),
        **({} if model.covariance is None else {"covariance": covariance_text(model.covariance)}),
        **({} if model.sampling is None else {"sampling": covariance_text(model.sampling)}),
        **({} if model.calibration is None else {"calibration": model.calibration.to_dict()}),
        **({"epochs": list(model.epochs)} if model.epochs else {}),
        **({} if model.started_from is None else {"started_from": model.started_from.hex()}),
        **({} if model.log_hazards is None else {"log_hazards": model.log_hazards.tolist()}),
        **({"class_weights": list(model.class_weights)} if model.class_weights else {}),
        **({} if model.threshold is None else {"threshold": model.threshold.to_dict()}),
    }


def from_json(content: dict[str, Any], kind: "type[Model]") -> "Model":
    """The model that a file describes. kind: the class of models. Raises ModelError, or an error of `_MALFORMED`."""
    schema = Schema.from_canonical(content["schema"].encode())
    feature_map = None
    if "feature_map" in content:
        feature_map = FeatureMap.from_list(content["feature_map"], bias=schema.bias)
    names = tuple(name for name, _ in content["theta"])
    theta = np.array([value for _, value in content["theta"]], dtype=np.float64).T
    model = kind(
        theta=theta,
        schema=schema,
        estimator=str(content["learner"]),
        release_digest=bytes.fromhex(content["release_digest"]),
        statement=PrivacyStatement.from_dict(content["statement"]),
        held_back=exact_number(content["held_back"]) if "held_back" in content else None,
        feature_map=feature_map,
        covariance=covariance_from_text(content["covariance"], theta.size) if "covariance" in content else None,
        sampling=covariance_from_text(content["sampling"], theta.size) if "sampling" in content else None,
        calibration=calibration_from(content["calibration"]) if "calibration" in content else None,
        epochs=tuple(map(str, content.get("epochs", ()))),
        started_from=bytes.fromhex(content["started_from"]) if "started_from" in content else None,
        log_hazards=np.array(content["log_hazards"], dtype=np.float64) if "log_hazards" in content else None,
        class_weights=tuple(map(int, content.get("class_weights", ()))),
        threshold=decision_of(content["threshold"]) if "threshold" in content else None,
    )
    if names != model.names:
        raise ModelError("theta's coordinates differ from those of the schema and the map; train it again")
    return model


def digest_of(content: dict[str, Any]) -> str:
    """The digest of what a file says beside it, in hexadecimal digits."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(_DOMAIN + text.encode()).hexdigest()
