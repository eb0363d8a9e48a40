"""What a backup lacks, what was lost since it was made, and what to run after it is restored."""

import datetime as dt
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpcore.errors import ConfigurationError
from radobase.printing import amount
from radofed.backup.manifest import OPERATOR, FileRole, Manifest
from radofed.node_config import load_node_config
from wire.identity import Certificate

_LOST = {
    "party": "the ledger lacks what was charged since then, and the history what was asked and decided",
    "coordinator": "queries and totals since then; parties send uploads of attempts under way again, and keep their "
    "charges",
    "learner": "queries and releases since then: their totals cannot be fetched, and parties keep their charges",
    OPERATOR: "requests that were signed since then, and newer versions of the roster",
}
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86_400


def age(manifest: Manifest, now_unix_s: float) -> str:
    """How old a backup is, such as "3 days"; empty if this machine's clock is behind the one that made it."""
    seconds = int(now_unix_s) - manifest.created_at_unix_s
    for unit_s, unit in ((_DAY_S, "day"), (_HOUR_S, "hour"), (_MINUTE_S, "minute")):
        if seconds >= unit_s:
            count = seconds // unit_s
            return f"{count} {unit}{'s' if count > 1 else ''}"
    return f"{seconds} s" if seconds >= 0 else ""


def words_of(manifest: Manifest, now_unix_s: float) -> list[str]:
    """What a backup is and what it lacks, one sentence each."""
    at = dt.datetime.fromtimestamp(manifest.created_at_unix_s, dt.UTC)
    size_bytes = sum(entry.size_bytes for entry in manifest.files)
    keys = "with private keys: keep it as a secret" if manifest.has_keys else "without private keys"
    old = age(manifest, now_unix_s)
    ago = f"{old} ago" if old else "which is in the future: check the clock of this machine"
    return [
        f"{manifest.whose}: {amount(len(manifest.files), 'file')}, {size_bytes} bytes, {keys}",
        f"made at {at:%Y-%m-%d %H:%M:%S} UTC by version {manifest.program}, {ago}",
        *(f"not in it: {each.what}: {each.why}" for each in manifest.missing),
    ]


def lost(manifest: Manifest, now_unix_s: float) -> str:
    """What is lost with the original: a sentence."""
    old = age(manifest, now_unix_s)
    return f"lost: what happened since the backup{f', in the last {old}' if old else ''}: {_LOST[manifest.role]}"


def next_steps(manifest: Manifest, directory: Path, now: dt.datetime) -> list[str]:
    """What to do with a restored directory, in this order."""
    steps = [f"move {directory / name} to {former}" for name, former in manifest.outside.items()]
    if manifest.role == OPERATOR:
        return [*steps, *_keys_step(manifest, directory), *_operator_steps(directory)]
    config = directory / manifest.configuration
    steps += _keys_step(manifest, directory)
    match manifest.role:
        case "party":
            steps.append("put the table where the configuration names it")
            if any(entry.role is FileRole.LEDGER for entry in manifest.files):
                steps.append(
                    f"rado ledger acknowledge --config {config}, by the data officer, while the coordinator and the "
                    "other parties run; again with --yes if its figures are right. The party answers nothing before"
                )
        case "coordinator":
            steps.append(f"rado coordinator roster ROSTER --config {config}, with the operator's newest roster.signed")
        case _:
            steps.append(f"rado learner list --config {config}, and ask again what is missing")
    return [*steps, *_certificate_step(manifest, directory, config, now), *_last_steps(manifest.role, config)]


def _keys_step(manifest: Manifest, directory: Path) -> list[str]:
    keys = [each.what for each in manifest.missing if each.is_key]
    if not keys:
        return []
    step = f"put the private keys back into {directory} if there is a copy ({', '.join(keys)})"
    if manifest.role == OPERATOR:
        return [f"{step}; without them the federation must be founded again"]
    request = f"rado provision request {directory} --federation {manifest.federation} --role {manifest.role}"
    return [
        f"{step}; otherwise run {request} --name {manifest.name}, and the operator runs `rado provision replace-key`"
    ]


def _operator_steps(directory: Path) -> list[str]:
    newer = f"if the coordinator has a newer one: rado provision renew-roster {directory} --roster THAT_FILE"
    return [f"rado provision roster {directory}, and compare its version with `rado coordinator status`; {newer}"]


def _certificate_step(manifest: Manifest, directory: Path, config: Path, now: dt.datetime) -> list[str]:
    """Of a certificate that is to be renewed, or has expired since."""
    path = load_node_config(config).tls.certificate
    for name, former in manifest.outside.items():
        if path.is_relative_to(former):
            path = directory / name / path.relative_to(former)
    try:
        certificate = Certificate.load(path)
    except ConfigurationError:
        return [f"put the certificate where {config} names it, or run `rado provision install`"]
    if not certificate.needs_renewal(now):
        return []
    return [f"rado certificate renew --config {config}: the certificate ends on {certificate.not_after:%Y-%m-%d}"]


def _last_steps(role: str, config: Path) -> list[str]:
    replaced = "new keys, by `rado provision request` and the operator's `rado provision replace-key`"
    first = {
        "party": [f"rado party check --config {config}, then rado party start --config {config}"],
        "coordinator": [f"rado coordinator start --config {config}"],
    }.get(role, [])
    if role == "learner":
        replaced = f"rado learner rotate-key --config {config}, and {replaced}"
    return [*first, f"if others may have read the lost disk or this backup: {replaced}"]


def to_dict(manifest: Manifest) -> Mapping[str, Any]:
    """A backup, for JSON. Sizes in bytes."""
    return {
        "role": manifest.role,
        "name": manifest.name,
        "federation": manifest.federation,
        "created_at_unix_s": manifest.created_at_unix_s,
        "program": manifest.program,
        "has_keys": manifest.has_keys,
        "files": [
            {"path": e.path, "bytes": e.size_bytes, "sha256": e.digest.hex(), "role": e.role.value}
            for e in manifest.files
        ],
        "missing": [{"what": each.what, "why": each.why, "key": each.is_key} for each in manifest.missing],
        "outside": dict(manifest.outside),
    }
