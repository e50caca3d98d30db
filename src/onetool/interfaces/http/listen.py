"""Resolves the host and binds the sockets. An unusable host or port raises an error of one line."""

import errno
import os
import socket
from collections.abc import Iterable
from contextlib import suppress
from ipaddress import ip_address
from typing import NamedTuple

from onetool.core.errors import OneToolError

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
