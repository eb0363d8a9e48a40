"""Environments of their own for what does not go with our dependencies, made on first use in the user's cache."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

INSTALL_TIMEOUT_S, WORK_TIMEOUT_S = 600, 3600


class UnavailableError(RuntimeError):
    """What a benchmark compares with cannot be had or run here; the message says why."""


@cache
def environment(name: str, pins: tuple[str, ...], imports: str) -> Path:
    """The interpreter of an environment `name` that holds `pins`, of which `imports` is a module.

    Raises UnavailableError if it cannot be made.
    """
    cache_home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    place = cache_home / "radofed-benchmarks" / f"{name}-python{sys.version_info[0]}.{sys.version_info[1]}"
    python = place / "bin" / "python"
    try:
        if not python.exists():
            _quiet([sys.executable, "-m", "venv", str(place)])
        if not _works(python, imports):
            _quiet([str(python), "-m", "pip", "install", "--quiet", *pins])
    except (OSError, subprocess.SubprocessError) as error:
        raise UnavailableError(f"{', '.join(pins)} could not be installed in {place.name}") from error
    if not _works(python, imports):
        raise UnavailableError(f"{', '.join(pins)} is installed and cannot be imported")
    return python


def work(python: Path, worker: str, job: Mapping[str, Any], timeout_s: float = WORK_TIMEOUT_S) -> Any:
    """What the worker, a file beside this one, prints as JSON on its last line; the job's arrays reach it as a .npz.

    Raises UnavailableError if it fails.
    """
    file = Path(__file__).resolve().with_name(worker)
    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder) / "job.npz", **job)
        try:
            done = subprocess.run(
                [str(python), str(file), str(Path(folder) / "job.npz")],
                check=True,
                capture_output=True,
                timeout=timeout_s,
            )
        except subprocess.SubprocessError as error:
            raise UnavailableError(f"the run of {worker} failed") from error
    return json.loads(done.stdout.splitlines()[-1])


def _works(python: Path, imports: str) -> bool:
    found = subprocess.run([str(python), "-c", f"import {imports}"], check=False, capture_output=True)
    return found.returncode == 0


def _quiet(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=INSTALL_TIMEOUT_S)
