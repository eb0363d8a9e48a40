"""What went wrong with a file, and what to do, in words."""

import errno

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
    """Whether reading a file may succeed later although nobody corrects a configuration."""
    return isinstance(error, OSError) and error.errno in _MAY_PASS


def in_words(error: OSError) -> str:
    """The cause, and the remedy where there is one: "Read-only file system; mount it for writing, or ..."."""
    cause = error.strerror or str(error)
    remedy = _REMEDIES.get(error.errno or 0)
    return cause if remedy is None else f"{cause}; {remedy}"
