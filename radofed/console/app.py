"""Serves the pages and actions of a role's views."""

import urllib.parse
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from hmac import compare_digest
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp

from dpcore.errors import RadofedError
from radobase.failure import Failure
from radobase.presentation.page import environment, stylesheet
from radofed.console.access import CSRF_FIELD, Access, Guard
from radofed.console.pages import Action, Answer, File, Goto, Page, Shown, Views, Visit

MOST_FORM_BYTES = 64 << 10
_MOST_FIELDS = 200
_HTMX = "htmx-2.0.11.min.js"


class Console:
    """One role's views, as an application of ASGI behind its guard."""

    def __init__(self, views: Views, access: Access) -> None:
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
            *(Route(f"/{page.path}", partial(self._page, page), methods=["GET"]) for page in self._views.pages),
            *(Route(f"/{each.path}", partial(self._action, each), methods=["POST"]) for each in self._views.actions),
        ]
        handlers: Mapping[Any, Callable[[Request, Exception], Awaitable[Response]]] = {
            RadofedError: self._failed,
            OSError: self._failed,
            HTTPException: self._refused,
        }
        pages = Starlette(routes=[Mount(self._access.root, routes=routes)], exception_handlers=handlers)
        # Outside of everything, so that answers to errors have the guard's headers, too.
        return Guard(pages, self._access)

    async def _page(self, page: Page, request: Request) -> Response:
        visit = Visit(request.path_params, dict(request.query_params))
        return await run_in_threadpool(lambda: self._response(page.show(visit), page.path))

    async def _action(self, action: Action, request: Request) -> Response:
        form = await _form(request)
        if not compare_digest(form.pop(CSRF_FIELD, "").encode(), self._access.csrf.encode()):
            raise HTTPException(403, "this form is not of this console: load the page again")
        visit = Visit(request.path_params, dict(request.query_params), form)
        return await run_in_threadpool(lambda: self._response(action.act(visit), action.path))

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
