"""Where a table in a database is: an address without a password, and a query. Imports no driver."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote

_SCHEME = re.compile(r"(postgresql|postgres|sqlite|duckdb):", re.IGNORECASE)
# What libpq reads as a password may contain any character: an address is refused unless every part is recognised.
_POSTGRESQL = re.compile(
    r"(?:postgresql|postgres)://(?:(?P<user>[^:@/?#\s]*)@)?(?P<hosts>[\w.,:\[\]%-]*)"
    r"(?:/(?P<database>[^/?#@\s]*))?(?:\?(?P<options>[^#\s]*))?",
    re.IGNORECASE,
)
_SECRET_OPTIONS = frozenset({"password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key"})
_KINDS = '"postgresql://host/database", "sqlite:path" or "duckdb:path"'
_REMEDY = "set PGPASSWORD or PGPASSFILE, or name a password_file with mode 0600"

# How soon a lost server is noticed: 10 s to connect, a minute of silence.
_WAITS = {"connect_timeout": "10", "keepalives_idle": "30", "keepalives_interval": "10", "keepalives_count": "3"}


@dataclass(frozen=True)
class DatabaseSource:
    """A query in a database."""

    kind: str
    """Postgresql, sqlite or duckdb."""
    place: str
    """libpq's address, or a file's path."""
    query: str
    """A SELECT."""
    password_file: Path | None = None
    """In libpq's format (.pgpass), for PostgreSQL only."""
    key: str | None = None
    """Column of whole numbers, each once, in whose order the rows are read; None for the query's own order."""

    @classmethod
    def of(
        cls,
        address: str,
        query: str,
        *,
        password_file: Path | None = None,
        directory: Path | None = None,
        key: str | None = None,
    ) -> "DatabaseSource":
        """The source at `address`. Paths are relative to `directory`.

        Raises ValueError if it is not an address, or contains a password. No message quotes the address.
        """
        found = _SCHEME.match(address)
        if found is None:
            raise ValueError(f"is not the address of a database; use {_KINDS}")
        if "\0" in address + query:
            raise ValueError("an address or a query cannot have a NUL character; remove it")
        kind = found[1].lower()
        if kind in {"postgresql", "postgres"}:
            _check_postgresql(address)
            return cls("postgresql", address, query, password_file, key)
        if password_file is not None:
            raise ValueError(f"{kind} has no passwords; leave password_file out")
        path = address[found.end() :]
        if not path or path.startswith("//"):
            raise ValueError(f'use "{kind}:path", with a path to a file that exists')
        try:
            return cls(kind, str(Path(directory or "") / Path(path).expanduser()), query, key=key)
        except RuntimeError as error:
            raise ValueError("the user's home directory is not known; write the whole path") from error

    @property
    def name(self) -> str:
        """The database's name: what the ledger calls the data by default."""
        if self.kind != "postgresql":
            return Path(self.place).name
        found = _parts(self.place)["database"] or _options(self.place).get("dbname", "")
        return unquote(found) or "postgresql"

    @property
    def file(self) -> Path | None:
        """The database's file; None for a server."""
        return None if self.kind == "postgresql" else Path(self.place)

    def __str__(self) -> str:
        """What errors call it: the address without user and options."""
        if self.kind != "postgresql":
            return f"{self.kind}:{self.place}"
        parts = _parts(self.place)
        return f"postgresql://{parts['hosts']}" + (f"/{parts['database']}" if parts["database"] else "")

    def connection(self, environment: Mapping[str, str] | None = None) -> str:
        """The address for libpq, with the options that it does not set itself.

        Rows may be read in the network unless the connection is encrypted, and by an impostor unless the server's
        certificate and name are verified: libpq's default, sslmode=prefer, ensures neither (PostgreSQL 15
        documentation, 34.19). So the default for a server that is not on this machine is verify-full.
        """
        environment = os.environ if environment is None else environment
        given = _options(self.place)
        added = {name: value for name, value in _WAITS.items() if name not in given}
        if environment.get("PGCONNECT_TIMEOUT"):
            added.pop("connect_timeout", None)
        if self.password_file is not None:
            added["passfile"] = str(self.password_file)
        hosts = given.get("hostaddr") or given.get("host") or _hosts(_parts(self.place)["hosts"])
        hosts = hosts or environment.get("PGHOSTADDR") or environment.get("PGHOST") or ""
        named_elsewhere = not hosts and (given.get("service") or environment.get("PGSERVICE"))
        if not all(_is_local(host) for host in hosts.split(",")) or named_elsewhere:
            added["sslmode"] = given.get("sslmode") or environment.get("PGSSLMODE") or "verify-full"
        if "sslmode" in given:
            added.pop("sslmode", None)
        mark = "&" if "?" in self.place else "?"
        return self.place + mark + "&".join(f"{name}={quote(value, safe='')}" for name, value in added.items())


def is_address(text: str) -> bool:
    """Whether a text that should be a path is the address of a database."""
    return _SCHEME.match(text) is not None


def _check_postgresql(address: str) -> None:
    found = _POSTGRESQL.fullmatch(address)
    if "@" in address and re.search(r":[^/]*[^@]*@", address.partition("//")[2]):
        raise ValueError(f"must not contain a password; remove it, then {_REMEDY}")
    if found is None:
        raise ValueError('use "postgresql://user@host:port/database", with special characters percent-encoded')
    if _SECRET_OPTIONS.intersection(name.casefold() for name in _options(address)):
        raise ValueError(f"must not contain a password, also not as an option; remove it, then {_REMEDY}")


def _parts(address: str) -> dict[str, str]:
    found = _POSTGRESQL.fullmatch(address)
    assert found is not None, "checked when the source was made"
    return found.groupdict(default="")


def _options(address: str) -> dict[str, str]:
    return dict(parse_qsl(_parts(address)["options"], keep_blank_values=True))


def _hosts(hosts: str) -> str:
    """The hosts of an address without their ports, separated by commas."""
    names = (re.sub(r"(\]|^[^:]*):\d*$", r"\1", host).strip("[]") for host in hosts.split(","))
    return ",".join(unquote(name) for name in names)


def _is_local(host: str) -> bool:
    """Whether a host is this machine: a Unix socket, or a loopback address."""
    if host in {"", "localhost"} or host.startswith(("/", "@")):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
