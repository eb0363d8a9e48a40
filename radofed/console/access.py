"""Who may use a console: the person who has the link that the command printed, in one browser, on this machine.

What each part is for:

- The listener has a loopback address, so no other machine reaches it.
- Another user of this machine reaches it, too. They lack the link: it has a token of 256 bits that works once, within
  TOKEN_LIFE_S seconds. The browser that opens it gets a session in a cookie.
- Browsers send cookies of a host to all of its ports, and another user may listen on another port of this host. So the
  cookie is limited to a path with 128 random bits, under which all pages are.
- Another site cannot read these pages: a browser that it sends here under another name (DNS rebinding) sends that
  name in Host, and only loopback names with this port are accepted. Nor can it send forms: the cookie is
  SameSite=Strict, each form has a token of its own, and Origin and Sec-Fetch-Site must not name another origin.
- A page runs no script but the console's own files, loads nothing from elsewhere, and is shown in no frame.
"""

import hmac
import secrets
import threading
import time
from collections.abc import Callable
from http.cookies import SimpleCookie

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

TOKEN_LIFE_S = 600.0
IDLE_S = 8 * 3600.0
"""A session ends if it is not used for this long."""
COOKIE = "rado-console"
CSRF_FIELD = "csrf"
_READING = frozenset({"GET", "HEAD"})

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    # With no-referrer a browser would send "Origin: null" with the console's own forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Access:
    """The secrets of one console. At most one session exists, that of the browser that opened the link first."""

    def __init__(self, port: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.hosts = frozenset({f"127.0.0.1:{port}", f"localhost:{port}"})
        self.root = f"/{secrets.token_urlsafe(16)}"
        self.csrf = secrets.token_urlsafe(32)
        self._token: str | None = secrets.token_urlsafe(32)
        self.link = f"http://127.0.0.1:{port}{self.root}/enter?token={self._token}"
        self._session: str | None = None
        self._clock = clock
        self._end = clock() + TOKEN_LIFE_S
        self._lock = threading.Lock()

    def enter(self, token: str) -> str | None:
        """A new session for the token, or None if it is wrong, was used, or is too old."""
        with self._lock:
            if self._token is None or not _equal(token, self._token) or self._clock() > self._end:
                return None
            self._token, self._session = None, secrets.token_urlsafe(32)
            self._end = self._clock() + IDLE_S
            return self._session

    def knows(self, session: str, *, prolongs: bool = True) -> bool:
        """Whether this is the session, and a person used it within IDLE_S. prolongs: whether a person uses it now."""
        with self._lock:
            if self._session is None or not _equal(session, self._session) or self._clock() > self._end:
                return False
            if prolongs:
                self._end = self._clock() + IDLE_S
            return True


def _equal(given: str, secret: str) -> bool:
    return hmac.compare_digest(given.encode(), secret.encode())


class Guard:
    """Lets a request through to the console if its Host, origin and session are right. Sets all security headers."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. Connections that are not HTTP are not answered."""
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        answer = self._answer(HTTPConnection(scope), scope["method"])
        await (answer or self._app)(scope, receive, send_with_headers)

    def _answer(self, connection: HTTPConnection, method: str) -> Response | None:
        """The answer to a request that does not reach the console's pages; None for one that does."""
        headers, path, access = connection.headers, connection.url.path, self._access
        if headers.get("host") not in access.hosts:
            return _refusal(421, "open the console by the address that the command printed")
        if method not in _READING and (fault := _foreign(headers, access.hosts)):
            return _refusal(403, fault)
        # Without the path's secret part the answer says nothing about the console.
        if not _equal(path[: len(access.root) + 1], f"{access.root}/"):
            return _refusal(404, "open the console by the link that the command printed")
        if path == f"{access.root}/enter" and method == "GET":
            return self._entered(connection)
        # A page that is open fetches parts of itself by htmx, also when no person is there.
        if not access.knows(_session(headers), prolongs="hx-request" not in headers):
            return _refusal(403, "no session: start `rado console` again and open its new link")
        return None

    def _entered(self, connection: HTTPConnection) -> Response:
        session = self._access.enter(connection.query_params.get("token", ""))
        if session is None:
            sentence = "this link was used before, is wrong or is too old: start `rado console` again and open its link"
            return _refusal(403, sentence)
        # The token leaves the address bar. 303: the history keeps only where it leads to.
        response = RedirectResponse(f"{self._access.root}/", status_code=303)
        response.set_cookie(COOKIE, session, path=f"{self._access.root}/", httponly=True, samesite="strict")
        return response


def _refusal(status: int, sentence: str) -> Response:
    return PlainTextResponse(f"{sentence}\n", status_code=status)


def _session(headers: Headers) -> str:
    found = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    return "" if found is None else found.value


def _foreign(headers: Headers, hosts: frozenset[str]) -> str:
    """Why a request that changes something is not from the console's own pages; empty if it is."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    if origin is None or origin not in {f"http://{host}" for host in hosts}:
        return "a form must be sent from the console's own pages"
    if site not in {None, "same-origin"}:
        return "a form of another site is not accepted"
    return ""
