"""Serves the pages and actions of a role's views."""

import secrets
import signal
import socket
import threading
import time
import urllib.parse
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from hmac import compare_digest
from importlib.resources import files
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dpcore.errors import ConfigurationError, RadofedError
from radobase import signed_on
from radobase.failure import Failure
from radobase.presentation.page import environment, stylesheet
from radofed.console.guarding import HEADERS, READING, equal, foreign, refusal
from radofed.console.pages import Answer, File, Goto, Shown, View, Views, Visit
from radofed.console.sign_on import SignOnAccess
from radofed.node_config import role_of
from wire.roster import Role

# Who may use a console: the person who has the link that the command printed, in one browser, on this machine.
#
# What each part is for:
#
# - The listener has a loopback address, so no other machine reaches it.
# - Another user of this machine reaches it, too. They lack the link: it has a token of 256 bits that works once, within
#   TOKEN_LIFE_S seconds. The browser that opens it gets a session in a cookie.
# - Browsers send cookies of a host to all of its ports, and another user may listen on another port of this host. So
# the   cookie is limited to a path with 128 random bits, under which all pages are.
# - Another site cannot read these pages: a browser that it sends here under another name (DNS rebinding) sends that
#   name in Host, and only loopback names with this port are accepted. Nor can it send forms: the cookie is
#   SameSite=Strict, each form has a token of its own, and Origin and Sec-Fetch-Site must not name another origin.
# - A page runs no script but the console's own files, loads nothing from elsewhere, and is shown in no frame.

TOKEN_LIFE_S = 600.0
IDLE_S = 8 * 3600.0
"""A session ends if it is not used for this long."""
COOKIE = "rado-console"
CSRF_FIELD = "csrf"


class Access:
    """The secrets of one console. At most one session exists, that of the browser that opened the link first."""

    def __init__(self, port: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.hosts = frozenset({f"127.0.0.1:{port}", f"localhost:{port}"})
        self.origins = frozenset(f"http://{host}" for host in self.hosts)
        self.root = f"/{secrets.token_urlsafe(16)}"
        self.csrf = secrets.token_urlsafe(32)
        self._token: str | None = secrets.token_urlsafe(32)
        self.link = f"http://127.0.0.1:{port}{self.root}/enter?token={self._token}"
        self._session: str | None = None
        self._clock = clock
        self._end = clock() + TOKEN_LIFE_S
        self._lock = threading.Lock()

    def guard(self, app: ASGIApp) -> ASGIApp:
        """The application, for the browser that opened the link."""
        return Guard(app, self)

    def enter(self, token: str) -> str | None:
        """A new session for the token, or None if it is wrong, was used, or is too old."""
        with self._lock:
            if self._token is None or not equal(token, self._token) or self._clock() > self._end:
                return None
            self._token, self._session = None, secrets.token_urlsafe(32)
            self._end = self._clock() + IDLE_S
            return self._session

    def knows(self, session: str, *, prolongs: bool = True) -> bool:
        """Whether this is the session, and a person used it within IDLE_S. prolongs: whether a person uses it now."""
        with self._lock:
            if self._session is None or not equal(session, self._session) or self._clock() > self._end:
                return False
            if prolongs:
                self._end = self._clock() + IDLE_S
            return True


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
            return refusal(421, "open the console by the address that the command printed")
        if method not in READING and (fault := foreign(headers, access.origins)):
            return refusal(403, fault)
        # Without the path's secret part the answer says nothing about the console.
        if not equal(path[: len(access.root) + 1], f"{access.root}/"):
            return refusal(404, "open the console by the link that the command printed")
        if path == f"{access.root}/enter" and method == "GET":
            return self._entered(connection)
        # A page that is open fetches parts of itself by htmx, also when no person is there.
        if not access.knows(_session(headers), prolongs="hx-request" not in headers):
            return refusal(403, "no session: start `rado console` again and open its new link")
        return None

    def _entered(self, connection: HTTPConnection) -> Response:
        session = self._access.enter(connection.query_params.get("token", ""))
        if session is None:
            sentence = "this link was used before, is wrong or is too old: start `rado console` again and open its link"
            return refusal(403, sentence)
        # The token leaves the address bar. 303: the history keeps only where it leads to.
        response = RedirectResponse(f"{self._access.root}/", status_code=303)
        response.set_cookie(COOKIE, session, path=f"{self._access.root}/", httponly=True, samesite="strict")
        return response


def _session(headers: Headers) -> str:
    # Browsers send the cookie of the longest path first. Others are of other ports of this host, in any form.
    pairs = (part.strip().partition("=") for part in headers.get("cookie", "").split(";"))
    return next((value for name, _, value in pairs if name == COOKIE), "")


MOST_FORM_BYTES = 64 << 10
_MOST_FIELDS = 200
_HTMX = "htmx-2.0.11.min.js"


class Console:
    """One role's views, as an application of ASGI behind its guard."""

    def __init__(self, views: Views, access: Access | SignOnAccess) -> None:
        self._views, self._access = views, access
        self._static: Mapping[str, tuple[bytes, str]] = {
            "style.css": (stylesheet().encode(), "text/css"),
            _HTMX: (files("radofed.console").joinpath("static", _HTMX).read_bytes(), "text/javascript"),
        }

    def application(self) -> ASGIApp:
        """The application. Errors of the program become a page with their sentence."""
        start, _ = self._views.navigation[0]
        routes = [
            Route("/", lambda _: self._goto(start)),
            *(Route(f"/static/{name}", partial(self._file, name)) for name in self._static),
            *(Route(f"/{path}", partial(self._page, path, show)) for path, show in self._views.pages.items()),
            *(
                Route(f"/{path}", partial(self._action, path, act), methods=["POST"])
                for path, act in self._views.actions.items()
            ),
        ]
        handlers: Mapping[Any, Callable[[Request, Exception], Awaitable[Response]]] = {
            RadofedError: self._failed,
            OSError: self._failed,
            HTTPException: self._refused,
        }
        pages = Starlette(routes=[Mount(self._access.root, routes=routes)], exception_handlers=handlers)
        # Outside of everything, so that answers to errors have the guard's headers, too.
        return self._access.guard(pages)

    async def _page(self, path: str, show: View, request: Request) -> Response:
        visit = Visit(request.path_params, dict(request.query_params))
        return await run_in_threadpool(lambda: self._response(show(visit), path))

    async def _action(self, path: str, act: View, request: Request) -> Response:
        form = await _form(request)
        if not compare_digest(form.pop(CSRF_FIELD, "").encode(), self._access.csrf.encode()):
            raise HTTPException(403, "this form is not of this console: load the page again")
        visit = Visit(request.path_params, dict(request.query_params), form)
        return await run_in_threadpool(lambda: self._response(act(visit), path))

    def _response(self, answer: Answer, path: str, status: int = 200) -> Response:
        match answer:
            case Goto():
                return self._goto(answer.path)
            case File():
                headers = {"Content-Disposition": f'attachment; filename="{answer.name}"'}
                return Response(answer.content, media_type=answer.media_type, headers=headers)
            case Shown():
                return HTMLResponse(self._rendered(answer, path), status_code=status)

    def _rendered(self, shown: Shown, path: str) -> str:
        shared = {
            "title": shown.title,
            "root": self._access.root,
            "csrf_field": CSRF_FIELD,
            "csrf": self._access.csrf,
            "signed_on": signed_on.present.get(),
            "views": self._views,
            "path": path,
            "saved_at": shown.saved_at,
        }
        return environment(shown.package).get_template(shown.template).render(shared | dict(shown.values))

    def _goto(self, path: str) -> Response:
        # 303: a form that was sent is not sent again when the next page is loaded again.
        return RedirectResponse(f"{self._access.root}/{path}", status_code=303)

    async def _file(self, name: str, _: Request) -> Response:
        content, media_type = self._static[name]
        return Response(content, media_type=media_type)

    async def _failed(self, request: Request, error: Exception) -> Response:
        # An action that failed at its answer may have reached others, such as a cancellation that was sent.
        values = {"failure": Failure.of(error), "is_action": request.method == "POST"}
        return self._response(Shown("failure.html", "Not done", values), "", status=400)

    async def _refused(self, _: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return PlainTextResponse(f"{error.detail}\n", status_code=error.status_code, headers=error.headers)


async def _form(request: Request) -> dict[str, str]:
    """The fields of a form. Raises HTTPException if it is too large or no form."""
    content = bytearray()
    async for chunk in request.stream():
        content += chunk
        if len(content) > MOST_FORM_BYTES:
            raise HTTPException(413, "this form is too large")
    try:
        fields = urllib.parse.parse_qsl(
            content.decode(), keep_blank_values=True, strict_parsing=bool(content), max_num_fields=_MOST_FIELDS
        )
    except ValueError as error:
        raise HTTPException(400, "this is no form") from error
    return dict(fields)


# Runs a console on a loopback address until SIGINT or SIGTERM.

LOOPBACK = "127.0.0.1"
_MOST_CONNECTIONS = 64


def settings(application: ASGIApp) -> uvicorn.Config:
    """How an application is served: little of everything, as one person uses it."""
    return uvicorn.Config(
        application,
        http="h11",
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
        limit_concurrency=_MOST_CONNECTIONS,
    )


def serve(views: Views, port: int, announce: Callable[[str], None], sign_on: SignOnAccess | None = None) -> None:
    """Serve until SIGINT or SIGTERM. port: 0 takes any free port. announce: is given the link to open, once.

    sign_on: what lets people in, behind a proxy; None: the link.

    Raises ConfigurationError if the port is taken.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((LOOPBACK, port))
        except OSError as error:
            raise ConfigurationError(f"port {port} of {LOOPBACK}: {error.strerror}; give another --port") from error
        listener.listen()
        access = sign_on or Access(listener.getsockname()[1])
        server = uvicorn.Server(settings(Console(views, access).application()))
        # The server ends at these signals, then raises them again: that must not end the process before it has closed.
        before = {each: signal.signal(each, lambda *_: None) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            announce(access.link)
            server.run(sockets=[listener])
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


# Which role a configuration file is of, and the views of that role.


def views_of(config: Path) -> Views:
    """The views of a node.

    Raises ConfigurationError if the file is no node's configuration.
    """
    # A role imports what another need not have installed.
    match role_of(config):
        case Role.PARTY:
            from radofed.console.party import party_views  # noqa: PLC0415

            return party_views(config)
        case Role.COORDINATOR:
            from radofed.console.coordinator import coordinator_views  # noqa: PLC0415

            return coordinator_views(config)
        case Role.LEARNER:
            from radofed.console.learner.views import learner_views  # noqa: PLC0415

            return learner_views(config)
