"""Decisions of people who are other users than the node's: files in a directory that both can reach.

The node shows each query that waits in a file of this directory, and a person decides by a file of their own there. Who
decided is the file's owner, which the operating system sets. Only root can give a file to another user.

The node takes a file only if its owner alone can write it and it has one name. It must say which query it is about.

A directory that others may write needs the sticky bit: otherwise they could remove a refusal. In a user namespace that
hides other users (`PrivateUsers=` of systemd) all of them look like the overflow user, whose files are refused.
"""

import base64
import binascii
import json
import os
import shutil
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpcore.errors import ConfigurationError
from parties.approval.decisions import LONGEST_TEXT, Decision, Person, user_name
from parties.config import PartyConfig
from radobase.reading import check_directories
from radobase.writing import sync_directory
from wire.envelopes import Envelope
from wire.errors import WireError

_FORMAT = 1
_LONGEST_DECISION, _LONGEST_QUERY = 1 << 16, 1 << 26
_READABLE = 0o644
_ID_BYTES, _LARGEST_UID = 32, (1 << 32) - 1
_DECISION, _WAITING, _OUTCOME = "decision", "waiting", "outcome"
_APPROVALS = "approvals.json"
_OVERFLOW_USER = Path("/proc/sys/kernel/overflowuid")


@dataclass(frozen=True)
class Waiting:
    """A query that waits, as the node shows it."""

    query_id: bytes
    envelope: Envelope
    reasons: tuple[str, ...]
    cost: str
    """Of an attempt and of all that are allowed, in a few words."""
    answers_due_unix_s: float
    needed: int
    costs: tuple[str, ...] = ()
    """The same in lines; none if the file is of an earlier version, whose `cost` is that of an attempt."""
    same_study: tuple[str, ...] = ()
    """What people are asked about the number of its study, where others are spelt alike."""


@dataclass(frozen=True)
class Left:
    """A decision that somebody left in the directory."""

    path: Path
    query_id: bytes
    uid: int
    decision: Decision | None
    cause: str
    """Why it does not count; empty if it may."""
    order: Mapping[str, Any] | None = None
    """About approvals of several queries, as written (parties.approval.giving.Order); None for a decision."""


class DecisionFiles:
    """The directory of one party's node."""

    def __init__(self, directory: Path, federation: str, party: str) -> None:
        self.directory, self._owner = directory, {"format": _FORMAT, "federation": federation, "party": party}

    @classmethod
    def of(cls, config: PartyConfig) -> "DecisionFiles | None":
        """The directory that a configuration names; None if it names none."""
        return None if config.decisions is None else cls(config.decisions, config.federation, config.name)

    @classmethod
    def for_others(cls, config: PartyConfig) -> "DecisionFiles | None":
        """The same, for a process that does not reach the party's state; None if it does."""
        return None if os.access(config.state_directory, os.W_OK | os.X_OK) else cls.of(config)

    def check(self) -> None:
        """Raise ConfigurationError unless the directory exists, is this process's, and is safe for people to share."""
        try:
            found = self.directory.stat()
        except OSError as error:
            raise ConfigurationError(
                f"{self.directory}: {error.strerror}; make the directory that decisions names, as this node's user"
            ) from error
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise ConfigurationError(
                f"{self.directory}: decisions must name a directory that belongs to this node's user, "
                f"{user_name(os.geteuid())}, so that it can take the files in it"
            )
        if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not found.st_mode & stat.S_ISVTX:
            raise ConfigurationError(
                f"{self.directory}: others may remove one another's decisions there; run: chmod +t {self.directory}"
            )
        check_directories(self.directory / "decision")

    # The node's side.

    def show(self, waiting: Waiting) -> None:
        """Show a query that waits to everybody who can read the directory. Raises OSError."""
        content = {
            **self._owner,
            "query_id": waiting.query_id.hex(),
            "envelope": base64.b64encode(waiting.envelope.to_bytes()).decode(),
            "reasons": list(waiting.reasons),
            "cost": waiting.cost,
            "costs": list(waiting.costs),
            "same_study": list(waiting.same_study),
            "answers_due_unix_s": waiting.answers_due_unix_s,
            "needed": waiting.needed,
        }
        self._write(f"{_WAITING}-{waiting.query_id.hex()}.json", content)

    def shows(self, query_id: bytes) -> bool:
        """Whether a query is shown."""
        return (self.directory / f"{_WAITING}-{query_id.hex()}.json").exists()

    def left(self) -> Iterator[Left]:
        """What people left, oldest first. Reads files of other users, and trusts nothing in them but their owner."""
        found = []
        for path in self.directory.glob(f"{_DECISION}-*.json"):
            try:
                found.append((path.lstat().st_mtime, path))
            except OSError:
                continue
        for _, path in sorted(found):
            one = self._read_decision(path)
            if one is not None:
                yield one

    def taken(self, one: Left, outcome: str, *, counted: bool) -> None:
        """Remove a decision, and tell the user who left it what became of it. Raises OSError."""
        name = f"{_OUTCOME}-{one.query_id.hex()}-{one.uid}.json"
        self._write(name, {**self._owner, "counted": counted, "outcome": outcome, "at_unix_s": time.time()})
        try:
            one.path.unlink(missing_ok=True)
        except IsADirectoryError:
            shutil.rmtree(one.path, ignore_errors=True)

    def keep_only(self, waiting: set[bytes]) -> None:
        """Show no other queries than these any more. Raises OSError."""
        for path in self.directory.glob(f"{_WAITING}-*.json"):
            query_id = path.stem.removeprefix(f"{_WAITING}-")
            if query_id not in {each.hex() for each in waiting}:
                path.unlink(missing_ok=True)

    def show_approvals(self, approvals: list[dict[str, Any]]) -> None:
        """Show the approvals of several queries, in JSON types. Raises OSError."""
        self._write(_APPROVALS, {**self._owner, "approvals": approvals})

    # The side of people.

    def approvals(self) -> list[dict[str, Any]]:
        """The approvals of several queries as the node showed them last. Raises ConfigurationError."""
        path = self.directory / _APPROVALS
        try:
            found, content = self._read(path, _LONGEST_QUERY)
            if found.st_uid != self.directory.stat().st_uid:
                raise ValueError("it is not the node's")
            return list(content["approvals"])
        except FileNotFoundError:
            return []
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigurationError(f"{path}: {error}; the node writes it again when an approval changes") from error

    def waiting(self) -> list[Waiting]:
        """The queries that the node shows, the most urgent first. Raises ConfigurationError if one is damaged."""
        try:
            node = self.directory.stat().st_uid
            # Whatever others put there is not the node's.
            paths = [path for path in self.directory.glob(f"{_WAITING}-*.json") if path.lstat().st_uid == node]
        except OSError as error:
            raise ConfigurationError(
                f"{self.directory}: {error.strerror}; ask the operator to let you into this directory"
            ) from error
        found = [self._read_waiting(path) for path in paths]
        return sorted(found, key=lambda each: each.answers_due_unix_s)

    def find(self, prefix: str) -> Waiting:
        """The query that waits and whose id begins with these digits. Raises ConfigurationError."""
        found = [each for each in self.waiting() if prefix and each.query_id.hex().startswith(prefix.lower())]
        if len(found) != 1:
            what = "no query that waits begins" if not found else f"{len(found)} queries that wait begin"
            raise ConfigurationError(f"{what} with {prefix!r}; see `rado party pending`")
        return found[0]

    def leave(
        self, query_id: bytes, *, approves: bool, name: str, reason: str, order: Mapping[str, Any] | None = None
    ) -> float:
        """Leave this user's decision, or an order about approvals. Returns when, for `outcome`.

        query_id: what it is about. Raises DecisionError, OSError.
        """
        person, now = Person.present(name), time.time()
        content = {
            **self._owner,
            "query_id": query_id.hex(),
            "approves": approves,
            "name": person.name,
            "reason": reason[:LONGEST_TEXT],
            **({} if order is None else {"order": dict(order)}),
        }
        self._write(f"{_DECISION}-{query_id.hex()}-{os.getuid()}.json", content)
        return now

    def outcome(self, query_id: bytes, since_unix_s: float) -> tuple[bool, str] | None:
        """Whether the node counted this user's decision, and what came of it; None if it did not look yet."""
        path = self.directory / f"{_OUTCOME}-{query_id.hex()}-{os.getuid()}.json"
        try:
            found, content = self._read(path, _LONGEST_DECISION)
            if found.st_uid == self.directory.stat().st_uid and float(content["at_unix_s"]) >= since_unix_s:
                return bool(content["counted"]), str(content["outcome"])
        except (OSError, ValueError, KeyError, TypeError):
            pass
        return None

    # Files.

    def _write(self, name: str, content: dict[str, Any]) -> None:
        """Replace a file of this user, durably and readable for all who reach the directory."""
        temporary = self.directory / f".{name}.{os.getpid()}"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, _READABLE)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                # Not by the mask of the process, which may be private.
                os.fchmod(file.fileno(), _READABLE)
                json.dump(content, file)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self.directory / name)
            sync_directory(self.directory)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise

    def _read(self, path: Path, longest: int) -> tuple[os.stat_result, dict[str, Any]]:
        """A file's state and content, both of the same open file. Raises OSError, ValueError."""
        # Another user made it: no link, no pipe that never ends.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
                raise ValueError("it is no file of its own")
            if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise ValueError("others can change it")
            data = file.read(longest + 1)
        if len(data) > longest:
            raise ValueError("it is too long")
        try:
            content = json.loads(data)
        except RecursionError as error:
            raise ValueError("it is nested too deeply") from error
        if not isinstance(content, dict) or any(content.get(key) != value for key, value in self._owner.items()):
            raise ValueError("it is not for this party")
        return found, content

    def _read_decision(self, path: Path) -> Left | None:
        """What a file says; None if it is gone, or its name is none that `leave` gives."""
        try:
            _, digits, number = path.stem.split("-")
            query_id, uid = bytes.fromhex(digits), int(number)
        except ValueError:
            return None
        # The outcome's name is made of it, and must fit.
        if len(query_id) != _ID_BYTES or (digits, number) != (query_id.hex(), str(uid)) or uid > _LARGEST_UID:
            return None
        try:
            found, content = self._read(path, _LONGEST_DECISION)
            if found.st_uid != uid or content["query_id"] != digits:
                raise ValueError("its name says another user or query")
            if uid == overflow_uid() and not _sees_users():
                raise ValueError("this node does not see who its owner is: run it without a user namespace of its own")
            name, reason, approves = content["name"], content["reason"], content["approves"]
            if not (isinstance(name, str) and isinstance(reason, str) and isinstance(approves, bool)):
                return Left(path, query_id, uid, None, f"{path.name} is not what `rado party approve` writes")
            if len(name) > LONGEST_TEXT or not name.isprintable() or len(reason) > LONGEST_TEXT:
                raise ValueError("its name or reason is too long or cannot be shown")
            reason.encode()  # a half of a character cannot be kept
            decision = Decision(Person(user_name(uid), name), approves, reason, time.time())
            order = content.get("order")
            if order is not None and not isinstance(order, dict):
                raise ValueError("its order is none")
            return Left(path, query_id, uid, decision, "", order)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, RecursionError) as error:
            return Left(path, query_id, uid, None, f"the file {path.name} does not count: {error}")

    def _read_waiting(self, path: Path) -> Waiting:
        try:
            _, content = self._read(path, _LONGEST_QUERY)
            envelope = Envelope.from_bytes(base64.b64decode(content["envelope"], validate=True))
            query_id = bytes.fromhex(content["query_id"])
            if envelope.payload_hash != query_id:
                raise ValueError("its query has another id")
            reasons = tuple(map(str, content["reasons"]))
            due, needed = float(content["answers_due_unix_s"]), int(content["needed"])
            costs = tuple(map(str, content.get("costs", ())))
            same = tuple(map(str, content.get("same_study", ())))
            return Waiting(query_id, envelope, reasons, str(content["cost"]), due, needed, costs, same)
        except (OSError, ValueError, KeyError, TypeError, binascii.Error, WireError) as error:
            raise ConfigurationError(f"{path}: {error}; remove this file: the node shows what waits again") from error


def overflow_uid() -> int:
    """The number that stands for every user whom a user namespace hides."""
    try:
        return int(_OVERFLOW_USER.read_text())
    except (OSError, ValueError):
        return 65534


def _sees_users() -> bool:
    """Whether all users have their own numbers here: this process is in no user namespace of its own."""
    try:
        fields = Path("/proc/self/uid_map").read_text(encoding="ascii").split()
    except OSError:
        return True
    return fields == ["0", "0", str((1 << 32) - 1)]
