"""A console behind an organisation's sign-on: a reverse proxy signs people on, and says who they are.

The proxy sends two headers: its secret, and who is signed on. Whoever reaches the console past it, such as another user
of this machine, lacks the secret, and is refused whatever the request says. So the listener stays on the loopback
address, and no address is trusted.

The proxy has to set both headers itself, also where a browser sent some of the same name (deploy/proxy/console.conf).
"""

import hmac
import secrets
from pathlib import Path
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dpcore.errors import ConfigurationError
from radobase import signed_on
from radobase.reading import Exposed, FileKind, read_text, with_remedy
from radobase.signed_on import SignedOn
from radofed.console.guarding import HEADERS, READING, equal, foreign, refusal
from radofed.node_config import role_of
from wire.roster import Role

SECRET, USER, NAME = "x-rado-proxy-secret", "x-rado-user", "x-rado-name"
FEWEST_CHARACTERS = 32
"""Of the secret."""
LONGEST_IDENTITY = 200
_LOOPBACK = frozenset({"localhost", "127.0.0.1"})
_SECRET = FileKind(
    with_remedy("write at least 32 random characters, such as by `openssl rand -hex 32`, with mode 0600"),
    limit_bytes=4096,
    secret=True,
    private=True,
    exposed=Exposed("secret", "if others had access, write another one here and at the proxy"),
)


def check_policy(config: Path) -> None:
    """Raise ConfigurationError if one person could approve twice: signed on, and as a user of this machine.

    config: of any role; only a party has a policy.
    """
    if role_of(config) is not Role.PARTY:
        return
    from parties.config import PartyConfig  # noqa: PLC0415  (of one role)
    from parties.policy import Policy  # noqa: PLC0415

    file = PartyConfig.load(config).policy
    rules = Policy.load(file).approval
    if rules.approvers > 1 and not all(user.startswith(signed_on.PREFIX) for user in rules.users or ("",)):
        raise ConfigurationError(
            f"{file}: {rules.approvers} people approve, and one could do so twice, signed on and as a user of this "
            f'machine: list in [approval] users only who is signed on, such as "{signed_on.PREFIX}ann@example.org"'
        )


class SignOnAccess:
    """What a console behind a proxy lets in. origin: as browsers see it. root: the path below which its pages are."""

    def __init__(self, address: str, secret_file: Path) -> None:
        """address: of the console in browsers, "https://HOST[/PATH]"; http only on this machine.

        Raises ConfigurationError if it is another one, or the secret is too short or can be read by others.
        """
        parts = urlsplit(address)
        is_local = parts.scheme == "http" and parts.hostname in _LOOPBACK
        if (
            not parts.hostname
            or parts.query
            or parts.fragment
            or parts.username
            or not (parts.scheme == "https" or is_local)
        ):
            raise ConfigurationError(
                f"{address!r} is not the address of a console behind a proxy: give https://HOST or https://HOST/PATH"
            )
        self.origin = f"{parts.scheme}://{parts.netloc}"
        self.hosts, self.root = frozenset({parts.netloc}), parts.path.rstrip("/")
        self.link = f"{self.origin}{self.root}/"
        self._secret = read_text(secret_file, _SECRET).strip()
        if len(self._secret) < FEWEST_CHARACTERS:
            raise _SECRET.error(secret_file, f"has {len(self._secret)} characters")
        self._csrf_key = secrets.token_bytes(32)

    @property
    def csrf(self) -> str:
        """The token of the forms of who is signed on."""
        person = signed_on.present.get()
        identity = "" if person is None else person.identity
        return hmac.new(self._csrf_key, identity.encode(), "sha256").hexdigest()

    def guard(self, app: ASGIApp) -> ASGIApp:
        """The application, for who is signed on."""
        return _Guard(app, self)

    def person(self, headers: Headers) -> SignedOn | str:
        """Who is signed on; why nobody is, in a sentence."""
        given = headers.getlist(SECRET)
        if len(given) != 1 or not equal(given[0], self._secret):
            return "this console is reached through the organisation's sign-on only"
        identities, names = headers.getlist(USER), headers.getlist(NAME)
        if len(identities) != 1 or not _is_identity(identities[0]):
            return f"the proxy named nobody: it has to send one {USER} with a printable identity, for who is signed on"
        if len(names) > 1 or not all(name.isprintable() and len(name) <= LONGEST_IDENTITY for name in names):
            return f"the proxy sent an odd {NAME}"
        return SignedOn(identities[0], " ".join("".join(names).split()))


def _is_identity(text: str) -> bool:
    return text.isascii() and text.isprintable() and 0 < len(text) <= LONGEST_IDENTITY and text == "".join(text.split())


class _Guard:
    """Lets a request through if the proxy sent it and its Host and origin are right. Sets all security headers."""

    def __init__(self, app: ASGIApp, access: SignOnAccess) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        found = self._look(HTTPConnection(scope), scope["method"])
        if not isinstance(found, SignedOn):
            status, sentence = found
            await refusal(status, sentence)(scope, receive, send_with_headers)
            return
        before = signed_on.present.set(found)
        try:
            await self._app(scope, receive, send_with_headers)
        finally:
            signed_on.present.reset(before)

    def _look(self, connection: HTTPConnection, method: str) -> SignedOn | tuple[int, str]:
        """Who asks, or the status and sentence of a refusal."""
        headers, access = connection.headers, self._access
        person = access.person(headers)
        # First of all: whoever lacks the secret learns nothing else.
        if isinstance(person, str):
            return 403, person
        if headers.get("host") not in access.hosts:
            return 421, f"the proxy has to pass the browser's Host on, which is {', '.join(access.hosts)}"
        if method not in READING and (fault := foreign(headers, frozenset({access.origin}))):
            return 403, fault
        if not connection.url.path.startswith(f"{access.root}/"):
            return 404, f"the console is below {access.link}"
        return person
