"""Who is signed on, where a proxy says so in place of the operating system: of one request, and of what it calls."""

from contextvars import ContextVar
from dataclasses import dataclass

PREFIX = "sign-on:"
"""Before an identity: no user of an operating system has a name with a colon."""


@dataclass(frozen=True)
class SignedOn:
    """A person whom an organisation's sign-on named."""

    identity: str
    """What tells people apart there, such as an address."""
    name: str = ""
    """For people; may be empty."""

    @property
    def user(self) -> str:
        """In place of a user of the operating system."""
        return f"{PREFIX}{self.identity}"


present: ContextVar[SignedOn | None] = ContextVar("signed_on", default=None)
"""None where the operating system's user is who acts."""
