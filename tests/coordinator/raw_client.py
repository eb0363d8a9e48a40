"""A client on bare HTTP/2 that leaves its messages unfinished, which gRPC's own clients cannot do."""

import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterable

from tests.waiting import HANG_S
from wire.identity import TlsFiles

# RFC 9113: types of frames, flags and settings.
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, ACK, END_HEADERS = 1, 1, 4
HEADER_TABLE_SIZE, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE = 1, 3, 4
FRAME_BYTES = 16384
UNSENT_BYTES = 1 << 20
MESSAGE_BYTES = 1 << 20


def _header(name: str, value: str) -> bytes:
    """A literal of HPACK (RFC 7541, 6.2.2)."""
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


class RawConnection:
    """One connection of one member, which sends as fast as windows allow."""

    def __init__(self, address: str, tls: TlsFiles, *, reads: bool = True) -> None:
        """reads: whether the server may send data of responses."""
        host, port = address.split(":")
        context = ssl.create_default_context(cafile=str(tls.ca))
        context.load_cert_chain(str(tls.certificate), str(tls.key))
        context.set_alpn_protocols(["h2"])
        self._socket = context.wrap_socket(socket.create_connection((host, int(port)), 10), server_hostname=host)
        self._socket.setblocking(False)
        self._out, self._in = bytearray(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), bytearray()
        self.settings = {MAX_CONCURRENT_STREAMS: 1 << 31, INITIAL_WINDOW_SIZE: 65535}
        self._window = 65535
        self._windows: dict[int, int] = {}
        self._unsent: dict[int, bytearray] = {}
        self._next_stream = 1
        self.is_up = True
        # The last headers of each stream that the server has ended.
        self.ended: dict[int, bytes] = {}
        # Without a table every header that the server sends is spelled out.
        self._send(SETTINGS, 0, 0, struct.pack(">HI", HEADER_TABLE_SIZE, 0))
        if not reads:
            self._send(SETTINGS, 0, 0, struct.pack(">HI", INITIAL_WINDOW_SIZE, 0))

    def close(self) -> None:
        self._socket.close()

    def begin(self, method: str) -> None:
        """Begin a call with a message of MESSAGE_BYTES that is never complete."""
        self._open(method, b"\0" + MESSAGE_BYTES.to_bytes(4, "big") + bytes(MESSAGE_BYTES - 1))

    def send(self, method: str, message: bytes) -> None:
        """Begin a call with a complete message."""
        self._open(method, b"\0" + len(message).to_bytes(4, "big") + message)

    @property
    def open_streams(self) -> int:
        """Calls that the server has not ended."""
        return (self._next_stream - 1) // 2 - len(self.ended)

    def _open(self, method: str, content: bytes) -> None:
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        fields = {
            ":method": "POST",
            ":scheme": "https",
            ":path": method,
            ":authority": "localhost",
            "content-type": "application/grpc",
            "te": "trailers",
        }
        self._send(HEADERS, END_HEADERS, stream, b"".join(_header(*field) for field in fields.items()))
        self._windows[stream] = self.settings[INITIAL_WINDOW_SIZE]
        self._unsent[stream] = bytearray(content)

    @property
    def unsent_bytes(self) -> int:
        return sum(map(len, self._unsent.values()))

    def pump(self) -> bool:
        """Send and receive without waiting; returns whether there was any data."""
        for stream in list(self._unsent):
            self._fill(stream)
        moved = False
        try:
            while self._out:
                del self._out[: self._socket.send(self._out[:FRAME_BYTES])]
                moved = True
            while data := self._socket.recv(FRAME_BYTES):
                self._in += data
                moved = True
            self.is_up = False
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError:
            self.is_up = False
        while len(self._in) >= 9 and len(self._in) >= 9 + int.from_bytes(self._in[:3], "big"):
            end = 9 + int.from_bytes(self._in[:3], "big")
            self._take(self._in[3], self._in[4], int.from_bytes(self._in[5:9], "big"), bytes(self._in[9:end]))
            del self._in[:end]
        return moved

    def _send(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        self._out += len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload

    def _fill(self, stream: int) -> None:
        unsent = self._unsent[stream]
        while len(self._out) < UNSENT_BYTES:
            size = min(len(unsent), self._windows[stream], self._window, FRAME_BYTES)
            if size <= 0:
                break
            self._send(DATA, 0, stream, bytes(unsent[:size]))
            del unsent[:size]
            self._windows[stream] -= size
            self._window -= size
        if not unsent:
            del self._unsent[stream]

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        number = int.from_bytes(payload[:4], "big")
        if kind == SETTINGS and not flags & ACK:
            self._take_settings(payload)
        elif kind == PING and not flags & ACK:
            self._send(PING, ACK, 0, payload)
        elif kind == WINDOW_UPDATE and stream:
            self._windows[stream] += number
        elif kind == WINDOW_UPDATE:
            self._window += number
        elif kind == RST_STREAM or (kind == HEADERS and flags & END_STREAM):
            self._end(stream, payload if kind == HEADERS else b"")
        elif kind == GOAWAY:
            self.is_up = False

    def _take_settings(self, payload: bytes) -> None:
        for name, value in struct.iter_unpack(">HI", payload):
            if name == INITIAL_WINDOW_SIZE:
                for stream in self._windows:
                    self._windows[stream] += value - self.settings[name]
            self.settings[name] = value
        self._send(SETTINGS, ACK, 0, b"")

    def _end(self, stream: int, headers: bytes) -> None:
        self.ended.setdefault(stream, headers)
        self._unsent.pop(stream, None)


def pump_until(connections: Iterable[RawConnection], condition: Callable[[], bool], timeout_s: float = HANG_S) -> bool:
    """Serve the connections until the condition holds or time is up; returns whether it holds."""
    end, connections = time.monotonic() + timeout_s, list(connections)
    while not condition() and time.monotonic() < end:
        # Serve all of them, not only up to the first with data.
        if not any([connection.pump() for connection in connections]):  # noqa: C419
            time.sleep(0.005)
    return condition()
