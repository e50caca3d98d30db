"""A new connection: the name is resolved, every address is checked, and a checked address is dialled. Nothing else is.

The certificate is checked against the host of the URL, whatever the address.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from onetool.core.errors import ToolFailure
from onetool.handlers.http.faults import Unreachable
from onetool.handlers.http.names import Names
from onetool.handlers.http.url import Url, is_address
from onetool.handlers.http.wire import Connection

if TYPE_CHECKING:
    import ssl

    from onetool.handlers.http.hosts import AllowedHosts, HostRule

MOST_ADDRESSES = 16  # that are tried; all are checked

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
Connect = Callable[..., Awaitable[tuple[Any, Any]]]
"""Like `loop.create_connection`: (factory, address, port, ssl=…, server_hostname=…)."""


class Dialler:
    def __init__(
        self, resolve: Resolve | None, connect: Connect | None, tls: "Callable[[], ssl.SSLContext] | None"
    ) -> None:
        self._resolve = resolve or Names().addresses
        self._connect = connect
        self._make_tls = tls or _default_tls
        self._tls: ssl.SSLContext | None = None

    def dialling(
        self, url: Url, rule: "HostRule", hosts: "AllowedHosts", deadline: float, lost: Callable[[Connection], None]
    ) -> Callable[[], Awaitable[Connection]]:
        return lambda: self._dial(url, rule, hosts, deadline, lost)

    async def _dial(
        self, url: Url, rule: "HostRule", hosts: "AllowedHosts", deadline: float, lost: Callable[[Connection], None]
    ) -> Connection:
        addresses = await self._addresses(url)
        for address in addresses:
            hosts.check_address(rule, address, url)
        loop = asyncio.get_running_loop()
        trouble: Unreachable | None = None
        tried = addresses[:MOST_ADDRESSES]
        for number, address in enumerate(tried):
            others = len(tried) - number - 1  # one that is silent must not use up the time of those that follow
            try:
                async with asyncio.timeout((deadline - loop.time()) / (others + 1) if others else None):
                    return await self._reach(url, address, lost)
            except (OSError, TimeoutError, ValueError) as error:
                trouble = _unreachable(url, error)
        raise trouble or Unreachable(f"{url.host} leads to no address")

    async def _addresses(self, url: Url) -> Sequence[str]:
        if is_address(url.host):
            return [url.host]
        try:
            return list(dict.fromkeys(await self._resolve(url.host, url.port)))
        except ToolFailure:
            raise
        except (OSError, UnicodeError) as error:
            words = getattr(error, "strerror", None) or error
            raise Unreachable(f"the name {url.host} can't be resolved: {words}") from None

    async def _reach(self, url: Url, address: str, lost: Callable[[Connection], None]) -> Connection:
        loop = asyncio.get_running_loop()
        more: dict[str, Any] = {}
        if url.scheme == "https":
            self._tls = self._tls or self._make_tls()
            more = {"ssl": self._tls, "server_hostname": url.host}
        connect = self._connect or loop.create_connection
        _, connection = await connect(lambda: Connection(loop, url.authority, lost), address, url.port, **more)
        return connection


def _default_tls() -> "ssl.SSLContext":
    import ssl

    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def _unreachable(url: Url, error: Exception) -> Unreachable:
    where = url.authority
    if isinstance(error, TimeoutError) and not error.strerror:
        return Unreachable(f"no connection to {where}: nobody answers there")
    if verify := getattr(error, "verify_message", None):
        return Unreachable(f"the certificate of {where} is not accepted: {verify}", again=False)
    if reason := getattr(error, "reason", None):  # of TLS
        return Unreachable(f"no TLS with {where}: {str(reason).lower().replace('_', ' ')}", again=False)
    number = getattr(error, "errno", None)  # asyncio has words of its own, which do not say why
    return Unreachable(f"no connection to {where}: {os.strerror(number) if number else error}")
