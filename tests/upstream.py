"""A real HTTP server on loopback that keeps the exact bytes it saw, and answers as it is told.

    with Upstream() as upstream:
        upstream.say(Reply(503), Reply(body=b"{}"))      # one for each request; the last one for all that follow
        …
        assert upstream.seen[0].raw.startswith(b"GET /a?b=c HTTP/1.1\r\n")

What it can be told: a `Reply`; bytes, sent as they are; a list of bytes, seconds or events to wait for, and CLOSE; or
a function that takes what was seen and gives one of these. The connection stays open, unless a `Reply` says `close`, or
CLOSE is told.
"""

import socket
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Self

CLOSE = object()
PATIENCE = 20.0  # seconds after which a connection that nobody uses ends


class Seen(NamedTuple):
    """One request: all its bytes, and what they say."""

    raw: bytes
    connection: int  # counted from 0: requests with one number came over one connection

    @property
    def method(self) -> str:
        return self.raw.split(b" ", 1)[0].decode("latin-1")

    @property
    def target(self) -> str:
        return self.raw.split(b" ", 2)[1].decode("latin-1")

    @property
    def header_list(self) -> list[tuple[str, str]]:
        lines = self.raw.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")[1:]
        return [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]

    @property
    def headers(self) -> dict[str, str]:
        """By their names in lower case; of several the last one."""
        return {name.lower(): value for name, value in self.header_list}

    @property
    def body(self) -> bytes:
        return self.raw.partition(b"\r\n\r\n")[2]


class Reply(NamedTuple):
    status: int = 200
    headers: Mapping[str, str] = {}
    body: bytes = b""
    reason: str = ""
    close: bool = False

    def encoded(self, method: str) -> bytes:
        head = f"HTTP/1.1 {self.status} {self.reason}\r\n"
        names = {name.lower() for name in self.headers}
        if "content-length" not in names and "transfer-encoding" not in names and self.status not in (204, 304):
            head += f"Content-Length: {len(self.body)}\r\n"
        if self.close:
            head += "Connection: close\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in self.headers.items())
        return head.encode("latin-1") + b"\r\n" + (b"" if method == "HEAD" else self.body)


Answer = Reply | bytes | Sequence[Any] | Callable[[Seen], Any]


class Upstream:
    """Its server is a thread, with one more for each connection; both end with it."""

    def __init__(self, *answers: Answer, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> None:
        self.seen: list[Seen] = []
        self.connections = 0  # made in all …
        self.open = 0  # … and there now
        self.host = host
        self._tls = tls
        self._answers: list[Answer] = list(answers) or [Reply(body=b"{}", headers={"Content-Type": "application/json"})]
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listening = socket.create_server((host, 0), family=family, backlog=256)
        self._listening.settimeout(PATIENCE)
        self.port: int = self._listening.getsockname()[1]

    @property
    def netloc(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://{self.netloc}"

    def say(self, *answers: Answer) -> None:
        with self._lock:
            self._answers = list(answers)

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.hang_up()
        for thread in self._threads:
            thread.join(PATIENCE)

    def hang_up(self) -> None:
        """End all connections that are there."""
        with self._lock:
            sockets = list(self._sockets)
        for one in sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _start(self, work: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=work, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except TimeoutError:
                continue
            except OSError:
                return  # closed
            number, self.connections = self.connections, self.connections + 1
            connection.settimeout(PATIENCE)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._sockets.add(connection)
            self._start(self._serve, connection, number)

    def _serve(self, plain: socket.socket, number: int) -> None:
        connection = plain
        with self._lock:
            self.open += 1
        try:
            if self._tls:
                connection = self._tls.wrap_socket(plain, server_side=True)
            rest = b""
            while True:
                raw, rest = _request(connection, rest)
                if raw is None or not self._answer(connection, Seen(raw, number)):
                    return
        except (OSError, ValueError):
            return  # the client has gone
        finally:
            with self._lock:
                self._sockets.discard(plain)
                self.open -= 1
            with suppress(OSError):
                connection.close()
            plain.close()

    def _answer(self, connection: socket.socket, seen: Seen) -> bool:
        """Whether the connection stays."""
        with self._lock:
            self.seen.append(seen)
            answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if callable(answer):
            answer = answer(seen)
        if isinstance(answer, Reply):
            connection.sendall(answer.encoded(seen.method))
            return not answer.close
        for step in [answer] if isinstance(answer, bytes) else answer:
            if step is CLOSE:
                return False
            if isinstance(step, bytes):
                connection.sendall(step)
            elif isinstance(step, threading.Event):
                while not step.wait(0.01):
                    if self._over.is_set():
                        return False
            elif self._over.wait(step):
                return False
        return True


def _request(connection: socket.socket, data: bytes) -> tuple[bytes | None, bytes]:
    """The bytes of the next request, and what came after them; None where the client has nothing more to say."""
    while b"\r\n\r\n" not in data:
        more = connection.recv(65536)
        if not more:
            return None, b""
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    length = next((int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:")), 0)
    chunks = [body]
    size = len(body)
    while size < length:
        more = connection.recv(65536)
        if not more:
            return None, b""
        chunks.append(more)
        size += len(more)
    body = b"".join(chunks)
    return head + b"\r\n\r\n" + body[:length], body[length:]
