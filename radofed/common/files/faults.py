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


def in_words(error: OSError) -> str:
    """The cause, and the remedy where there is one: "Read-only file system; mount it for writing, or ..."."""
    cause = error.strerror or str(error)
    remedy = _REMEDIES.get(error.errno or 0)
    return cause if remedy is None else f"{cause}; {remedy}"
