"""What every request to a console is held to, whoever lets people in."""

import hmac

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response

READING = frozenset({"GET", "HEAD"})
"""Methods that change nothing."""

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


def equal(given: str, secret: str) -> bool:
    """Whether a caller gave the secret, in a time that says nothing about it."""
    return hmac.compare_digest(given.encode(), secret.encode())


def refusal(status: int, sentence: str) -> Response:
    """An answer without a page."""
    return PlainTextResponse(f"{sentence}\n", status_code=status)


def foreign(headers: Headers, origins: frozenset[str]) -> str:
    """Why a request that changes something is not from the console's own pages; empty if it is.

    origins: those of the console.
    """
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    if origin is None or origin not in origins:
        return "a form must be sent from the console's own pages"
    if site not in {None, "same-origin"}:
        return "a form of another site is not accepted"
    return ""
