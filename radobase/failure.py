"""How a command or a page of the console failed: a code, a sentence, an exit code, and the page that explains it."""

import re
import sys
from dataclasses import dataclass

from dpcore.errors import RadofedError
from radobase.files.faults import in_words

EXIT_FAILED = 1
EXIT_USAGE = 4
EXIT_BUG = 5

# The extra that installs a module.
_EXTRAS = {
    "phe": "learner",
    "scipy": "learner",
    "sklearn": "learner",
    "ray": "ray",
    "prometheus_client": "metrics",
    "jinja2": "report",
    "yaml": "report",
    "starlette": "console",
    "uvicorn": "console",
}


@dataclass(frozen=True)
class Failure:
    """How a command failed: a code, a sentence, the exit code, and the page that explains the code."""

    code: str
    message: str
    exit_code: int
    page: str = ""

    @classmethod
    def of(cls, error: BaseException) -> "Failure":
        """The failure for an exception. One of an unknown type is a bug, exit code 5."""
        if isinstance(error, RadofedError):
            return _of_radofed(error)
        if isinstance(error, KeyboardInterrupt):
            return cls("INTERRUPTED", "interrupted", EXIT_FAILED)
        if isinstance(error, ModuleNotFoundError) and (extra := _EXTRAS.get((error.name or "").split(".")[0])):
            sentence = f"this needs {error.name}, which is not installed: python deploy/install.py {extra}"
            return cls("EXTRA_MISSING", sentence, EXIT_USAGE)
        if isinstance(error, OSError):
            place = f"{error.filename}: " if error.filename else ""
            return cls("FILE", f"{place}{in_words(error)}", EXIT_FAILED)
        sentence = f"this is a bug in radofed ({type(error).__name__}: {error}); run again with --debug and report it"
        return cls("BUG", sentence, EXIT_BUG)


def _of_radofed(error: RadofedError) -> Failure:
    # If wire was not imported, the error is not wire's. Do not import it here: gRPC is slow to load, and the error may
    # be that another distribution's package has wire's name.
    if (errors := sys.modules.get("wire.errors")) is not None and isinstance(error, errors.WireError):
        return Failure(error.code.value, str(error), errors.exit_code_of(error), errors.page_of(error.code))
    return Failure(local_code(type(error)), str(error), error.exit_code)


def local_code(kind: type[RadofedError]) -> str:
    """The code of an error that is not in the catalogue: its class name, PlanError as PLAN."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__.removesuffix("Error")).upper()
