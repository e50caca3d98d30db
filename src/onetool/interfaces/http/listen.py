"""Resolves the host, binds the sockets, and writes the welcome text with instructions for clients.

An unusable host or port raises an error of one line. The text is printed at startup, and served at `/` to clients such
as curl.
"""

import errno
import json
import os
import re
import socket
import struct
import sys
from collections.abc import Iterable
from contextlib import suppress
from ipaddress import ip_address
from itertools import islice
from typing import NamedTuple
from urllib.parse import quote

from onetool.core.errors import OneToolError
from onetool.core.registry import LazyTool, as_spec
from onetool.core.spec import ToolSpec
from onetool.core.system import IS_WINDOWS

TRIES = 5  # to find a port that is free on several addresses
WILDCARDS = ("0.0.0.0", "::")  # noqa: S104 - to recognize them, not to bind them
NOT_HERE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)

Address = tuple[socket.AddressFamily, str]


class ListenError(OneToolError):
    """Raised when the host or the port can't be used."""


class BoundAddress(NamedTuple):
    """The requested host of a server, its addresses, the actual port and the sockets."""

    host: str
    port: int
    addresses: tuple[str, ...] = ()
    sockets: tuple[socket.socket, ...] = ()

    @property
    def listens(self) -> str:
        """The address in words."""
        all_of_them = " (all addresses of this machine)" if self.host in WILDCARDS else ""
        return f"http://{authority(self.host, self.port)}{all_of_them}"

    @property
    def url(self) -> str:
        """An address that works on this machine."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104
        return f"http://{authority(host, self.port)}"


def authority(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def resolve(host: str) -> list[Address]:
    name: str | bytes = host
    with suppress(ValueError):
        ip_address(host)
        name = host.encode()  # str would load the tables of international names
    try:
        found = socket.getaddrinfo(name, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:  # UnicodeError: not a valid name
        reason = error.strerror if isinstance(error, OSError) else "this is not a valid host name"
        raise ListenError(f"the host {host!r} can't be used: {reason}; see --host and http.host") from None
    return list(dict.fromkeys((family, str(address[0])) for family, _, _, _, address in found))


def is_loopback(addresses: Iterable[str]) -> bool:
    """Return whether all addresses can be reached only from this machine."""
    return all(ip_address(address.partition("%")[0]).is_loopback for address in addresses)


def listen(host: str, port: int, addresses: list[Address]) -> BoundAddress:
    """Bind sockets on every address of the host, all with the same port, which the system chooses if it is 0."""
    for tries_left in reversed(range(TRIES)):
        try:
            sockets = _bound(addresses, port)
        except OSError as error:
            if port == 0 and error.errno == errno.EADDRINUSE and tries_left:
                continue  # free on one address but not on another
            raise ListenError(_reason(error, host, port)) from None
        here = tuple(str(one.getsockname()[0]) for one in sockets)
        return BoundAddress(host, sockets[0].getsockname()[1], here, tuple(sockets))
    raise AssertionError("the last try returns or raises")


def _bound(addresses: list[Address], port: int) -> list[socket.socket]:
    sockets: list[socket.socket] = []
    missing: OSError | None = None
    try:
        for family, address in addresses:
            try:
                sockets.append(_socket(family, address, sockets[0].getsockname()[1] if sockets else port))
            except OSError as error:  # `localhost` is also ::1, even on a machine without IPv6
                if error.errno not in NOT_HERE:
                    raise
                missing = error
        if not sockets:
            raise missing or OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
    except OSError:
        for one in sockets:
            one.close()
        raise
    return sockets


def _socket(family: socket.AddressFamily, address: str, port: int) -> socket.socket:
    one = socket.socket(family, socket.SOCK_STREAM)
    try:
        if not IS_WINDOWS:  # on Windows two servers could share a port
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Connections inherit this option, which detects vanished peers.
        one.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        one.bind((address, port))
        one.listen(2048)  # at once, to fail if another program listens on the port
    except OSError:
        one.close()
        raise
    one.setblocking(False)
    return one


def listen_unix(path: str) -> socket.socket:
    """Bind a Unix socket for other processes of this user."""
    one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with suppress(FileNotFoundError):
            os.unlink(path)  # left by a killed process: paths have ids that are unique among running processes
        one.bind(path)
        os.chmod(path, 0o600)
        one.listen(2048)
    except OSError as error:
        one.close()
        raise ListenError(f"can't listen on {path}: {error.strerror or error}") from None
    one.setblocking(False)
    return one


def _reason(error: OSError, host: str, port: int) -> str:
    place = authority(host, port)
    if error.errno == errno.EADDRINUSE:
        hint = "choose another port: --port N (0: the system chooses)"
        return f"{place} is in use by another program, perhaps by an `onetool serve` that runs already; {hint}"
    if error.errno == errno.EACCES:
        return f"this user may not listen on {place}; ports from 1024 need no privileges: --port N"
    if error.errno in NOT_HERE:
        return f"this machine has no address {host}; see --host and http.host"
    return f"can't listen on {place}: {error.strerror or error}"


def refuse_new(listening: socket.socket) -> None:
    """Let the system drop new connections to a socket, for all processes that listen on it. Works only on Linux.

    Closing a socket cuts off clients that connected since the last accept. Dropping new connections first allows these
    clients to be accepted. Dropped clients retry a second later, and their connection is refused.
    """
    if sys.platform == "linux":
        from ctypes import addressof, create_string_buffer

        program = b"".join(struct.pack("HBBI", *step) for step in _NO_SYN)
        place = create_string_buffer(program)
        with suppress(OSError):  # not allowed on some systems
            found = struct.pack("@HP", len(_NO_SYN), addressof(place))
            listening.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, found)


_SO_ATTACH_FILTER = 26
_SYN = 0x02
_NO_SYN = (  # a packet filter, from the TCP header on: code, jump if true, jump if false, operand
    (0x30, 0, 0, 13),  # load the byte with the flags
    (0x45, 0, 1, _SYN),  # is the flag set?
    (0x06, 0, 0, 0),  # drop it
    (0x06, 0, 0, 0xFFFFFFFF),  # let all of it pass
)
# How to connect a client

DEFAULT_VARIABLE = "$ONETOOL_TOKEN"  # if the config has the literal token: a variable that the reader sets
TOKENS = "http.token of its config, or a token created with `onetool tokens add`"


class ServerFacts(NamedTuple):
    """The facts about a server in the welcome text."""

    listens: str  # the address in words
    own_url: str  # the URL for this machine
    url: str  # the URL for clients
    tools: str  # their number in words
    config: str  # the config file in words
    header: str | None  # the header with the token, if there is one
    first: str | None  # the tool to try first
    has_links: bool = False  # whether `onetool page` prints links to it


def bearer_header(shown: str = "") -> str:
    """Return the Authorization header with a shell variable for the token. `shown` is the text in the config."""
    name = re.fullmatch(r"\$\{(\w+)\}", shown)
    return f"Authorization: Bearer {f'${name[1]}' if name else DEFAULT_VARIABLE}"


def claude_command(url: str, header: str | None) -> str:
    line = f"claude mcp add --transport http onetool {url}/mcp"
    return f"{line} --header '{_as_client_variable(header)}'" if header else line  # quoted: the client expands it


def json_snippet(url: str, header: str | None) -> str:
    """Return the JSON that most clients accept in their config."""
    server: dict[str, object] = {"type": "http", "url": f"{url}/mcp"}
    if header:
        name, _, value = _as_client_variable(header).partition(": ")
        server["headers"] = {name: value}
    return json.dumps({"mcpServers": {"onetool": server}})


def _as_client_variable(header: str) -> str:
    """Return the header with the client's variable syntax `${NAME}`, so that the token is not in the client's file."""
    return re.sub(r"\$(\w+)", r"${\1}", header)


FIRST = "time.now"
MAX_TRIED = 500  # tools to try: with 100,000 it would take seconds


def first_tool(tools: Iterable[ToolSpec | LazyTool]) -> str | None:
    """Return the name of a tool that needs no arguments and changes nothing."""
    found = None
    for tool in islice(tools, MAX_TRIED):
        if found is None or tool.name == FIRST:
            spec = as_spec(tool)
            if not spec.input_schema.get("required") and (spec.read_only or spec.pure):
                found = tool.name
        if found == FIRST:
            break
    return found


def first_call(url: str, header: str | None, tool: str | None) -> str:
    """Return a curl command that calls a tool, or lists the tools if `tool` is None."""
    line = f"curl {url}/tools/tools" if tool is None else f"curl -X POST {url}/call/{quote(tool, safe='')}"
    return line if header is None else f'{line} -H "{header}"'  # double quotes, so that the shell expands it


def _client_lines(url: str, header: str | None) -> tuple[str, ...]:
    config = ("or, in the config of most other clients:", f"  {json_snippet(url, header)}")
    return ("Connect a client:", f"  {claude_command(url, header)}", *config)


def greeting(facts: ServerFacts) -> str:
    url, header = facts.url, facts.header
    reached = [] if url == facts.own_url else [f"Clients reach it at {url}, as http.url says."]
    owner = ["  onetool page prints a link that opens it as its owner, with the role admin."] if facts.has_links else []
    lines = [
        f"OneTool listens on {facts.listens} with {facts.tools}, from {facts.config}. Ctrl-C stops it.",
        *reached,
        "",
        "Open the page in a browser:",
        f"  {url}/",
        *owner,
        *_client_lines(url, header),
        "Or use the REST API, which is described at:",
        f"  {url}/openapi.json",
        "",
        "Try a first call:",
        f"  {first_call(url, header, facts.first)}",
        "",
    ]
    return "\n".join(lines)


def connect_text(url: str, needs_token: bool) -> str:
    """Return the public text, which reveals nothing about the tools and the config."""
    header = bearer_header() if needs_token else None
    token = [f"Everything here requires a token of this server: {TOKENS}."] if needs_token else []
    lines = [
        "This is OneTool. Open this address in a browser to see the page.",
        *token,
        "",
        *_client_lines(url, header),
        "The REST API is described at:",
        f"  {url}/openapi.json",
        "List the tools:",
        f"  {first_call(url, header, None)}",
        "",
    ]
    return "\n".join(lines)
