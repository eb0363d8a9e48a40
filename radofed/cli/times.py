"""Times as commands print them: local, with the zone."""

import datetime as dt


def local_time(unix_s: float) -> str:
    """Local time for people."""
    return f"{dt.datetime.fromtimestamp(unix_s, dt.UTC).astimezone():%Y-%m-%d %H:%M:%S}"


def zone() -> str:
    """The name of the local zone."""
    return f"{dt.datetime.now(dt.UTC).astimezone():%Z}"
