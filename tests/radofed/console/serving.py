"""A console that runs, and the ways to reach it: by HTTP, and with a headless browser."""

import http.client
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlencode, urlsplit

import uvicorn

from radofed.console.app import Access, Console, settings
from radofed.console.pages import Views
from tests.waiting import HANG_S, wait_until

LINK = re.compile(r"http://127\.0\.0\.1:(\d+)/[\w-]+/enter\?token=[\w-]+")


class Caller:
    """A client of HTTP that sends what it is given, without a browser's rules."""

    def __init__(self, link: str) -> None:
        self.address = urlsplit(link)
        self.root = self.address.path.removesuffix("enter")
        self.host = self.address.netloc
        self.cookie = ""

    def ask(self, path: str, *, method: str = "GET", form=None, **headers: str):
        """Status, headers and text of an answer. path: below the console's root, or from "/" on."""
        connection = http.client.HTTPConnection(self.address.hostname, self.address.port, timeout=HANG_S)
        body = None if form is None else urlencode(form)
        sent = {"Host": self.host, "Cookie": self.cookie} | ({"Origin": f"http://{self.host}"} if body else {})
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        whole = path if path.startswith("/") else self.root + path
        connection.request(method, whole, body, {name: value for name, value in sent.items() if value})
        answer = connection.getresponse()
        found = answer.status, dict(answer.getheaders()), answer.read().decode()
        connection.close()
        return found

    def enter(self) -> int:
        """Open the link, and keep the session."""
        status, headers, _ = self.ask(f"enter?{self.address.query}")
        self.cookie = headers.get("set-cookie", "").split(";")[0]
        return status


@contextmanager
def serving(views: Views, **options) -> Iterator[Access]:
    """A console in a thread. options: of its `Access`."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        access = Access(listener.getsockname()[1], **options)
        server = uvicorn.Server(settings(Console(views, access).application()))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            wait_until(lambda: server.started, what="the console")
            yield access
        finally:
            server.should_exit = True
            thread.join(HANG_S)
