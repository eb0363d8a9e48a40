"""nginx and HAProxy as processes, with the samples of deploy/proxy or with a configuration that opens TLS."""

import contextlib
import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from tests.waiting import HANG_S, wait_until

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "deploy" / "proxy"
# Debian keeps both off the path of users.
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin"
NGINX, HAPROXY = (shutil.which(name, path=_PATH) for name in ("nginx", "haproxy"))
STREAM = Path("/etc/nginx/modules-enabled/50-mod-stream.conf")
COMMANDS = {"nginx.conf": [NGINX, "-e", "stderr", "-g", "daemon off;", "-c"], "haproxy.cfg": [HAPROXY, "-f"]}

needs_nginx = pytest.mark.skipif(NGINX is None or not STREAM.exists(), reason="nginx with its module stream is missing")
needs_haproxy = pytest.mark.skipif(HAPROXY is None, reason="HAProxy is not installed")


def sample(name: str, *, port: int, target: str) -> str:
    """A sample with this port of loopback in place of every address, and with target, "host:port", behind it."""
    changes = {
        "coordinator.internal:7443": target,
        "listen 7443;": f"listen 127.0.0.1:{port};",
        "listen [::]:7443;": "",
        "bind :::7443 v4v6": f"bind 127.0.0.1:{port}",
        "pid /run/nginx.pid;": f"pid /tmp/nginx-{port}.pid;",
    }
    text = (SAMPLES / name).read_text()
    for old, new in changes.items():
        text = text.replace(old, new)
    assert target in text
    assert f"127.0.0.1:{port}" in text
    assert ":7443" not in text
    return text


def opens_tls(port: int, target: str, certificate: Path, key: Path) -> str:
    """nginx as it must not be: it ends TLS and asks the coordinator in its own name."""
    # Else only root could start it.
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    folders = "\n".join(f"    {kind}_temp_path /tmp/nginx-{port}-{kind};" for kind in kinds)
    return f"""\
error_log stderr;
pid /tmp/nginx-{port}.pid;
events {{ }}
http {{
    access_log off;
{folders}
    server {{
        listen 127.0.0.1:{port} ssl http2;
        ssl_certificate {certificate};
        ssl_certificate_key {key};
        location / {{ grpc_pass grpcs://{target}; }}
    }}
}}
"""


@contextlib.contextmanager
def running(name: str, text: str, directory: Path, port: int):
    """The proxy with this configuration, until the end of the block."""
    file = directory / name
    file.write_text(text)
    log = directory / "proxy.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [*COMMANDS[name], file],
            cwd=directory,
            stdout=stream,
            stderr=stream,
        )
    try:
        wait_until(lambda: process.poll() is not None or _answers(port), what=f"the proxy: {log.read_text()}")
        assert process.poll() is None, log.read_text()
        yield
    finally:
        process.terminate()
        process.wait(HANG_S)
        for left in Path("/tmp").glob(f"nginx-{port}-*"):
            left.rmdir()


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False
