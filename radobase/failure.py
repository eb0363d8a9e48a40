"""How a command or a page of the console failed: a code, a sentence, an exit code, and the page that explains it."""

import errno
import re
import sys
from dataclasses import dataclass

from dpcore.errors import RadofedError

# What went wrong with a file, and what to do, in words.


_REMEDIES = {
    errno.ENOSPC: "free space there",
    errno.EDQUOT: "free space there, or raise the quota",
    errno.EROFS: "mount it for writing, or name another place in the configuration",
    errno.EACCES: "correct its owner and mode, or run as the user that owns it",
    errno.EPERM: "correct its owner and mode, or run as the user that owns it",
    errno.EMFILE: "raise this process's limit of open files",
    errno.EIO: "check the disk, and restore a backup if it is damaged",
    errno.EADDRINUSE: "stop what listens there, or configure another port",
}
# A mount that is late, a server of files that does not answer, a disk that fails once: later it may be there.
_MAY_PASS = frozenset(
    {
        errno.ENOENT, errno.ENOTDIR, errno.ENODEV, errno.ENXIO, errno.EIO, errno.ESTALE, errno.ENOTCONN,
        errno.ETIMEDOUT, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ECONNREFUSED, errno.ECONNRESET,
        errno.EAGAIN, errno.EINTR, errno.EBUSY, errno.EMFILE, errno.ENFILE, errno.ENOMEM,
    }
)  # fmt: skip


def may_pass(error: BaseException | None) -> bool:
    """Whether reading a file may succeed later without a correction of the configuration."""
    return isinstance(error, OSError) and error.errno in _MAY_PASS


def in_words(error: OSError) -> str:
    """The cause, and the remedy where there is one: "Read-only file system; mount it for writing, or ..."."""
    cause = error.strerror or str(error)
    remedy = _REMEDIES.get(error.errno or 0)
    return cause if remedy is None else f"{cause}; {remedy}"


EXIT_FAILED = 1
EXIT_USAGE = 4
EXIT_BUG = 5

# The extra that installs a module.
_EXTRAS = {
    "Crypto": "learner",
    "phe": "phe",
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
