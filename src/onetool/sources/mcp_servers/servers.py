"""`Servers`, the source of all MCP servers in the config.

Their tools are cached, so listing tools starts no server. The first call, or `start`, starts the event loop with the
connections.
"""

import sys
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec
from msgspec.structs import replace

from onetool.core.errors import Mistake, ToolFailure
from onetool.core.json_data import StoreBlob
from onetool.core.registry import Catalogue
from onetool.core.signature import as_identifier
from onetool.database.documents import Documents
from onetool.sources.mcp_servers.conversion import keep_apart
from onetool.sources.mcp_servers.proxy import ServerProxy
from onetool.sources.mcp_servers.server_cache import Offers, ServerCache, ServerListing, file_name
from onetool.sources.mcp_servers.server_log import Redact
from onetool.sources.mcp_servers.settings import AuthValue, ServerSettings, Transport, secrets_in

if TYPE_CHECKING:
    from onetool.sources.mcp_servers.connection import Work
    from onetool.sources.mcp_servers.loop import ServerLoop

T = TypeVar("T")
State = Literal["connected", "connecting", "disconnected", "idle", "disabled"]

BriefHealth = Literal["ok", "down", "changed"]

# Why a server is not connected, for callers who may use some of its tools but not see its errors.
DOWN = "it can't be reached; see its log"
NEEDS_LOGIN = "it requires a login"


class ServerStatus(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    state: State  # idle: not needed yet
    transport: Transport
    target: str  # the command line or the URL, without secrets
    tools: int
    version: str | None = None  # the server's own name and version
    error: str | None = None  # why it is not connected
    changed: tuple[str, ...] = ()  # tools that differ from the approved ones, with the changed parts
    refused: bool = False  # because of `changed`
    since: float | None = None  # the last change of `state`, in seconds since the epoch
    needs_login: bool = False  # a user has to log in
    warning: str | None = None  # what its users should know about what it lists


class Servers:
    """The source of all MCP servers. `on_change` is called from any thread when the tools change."""

    def __init__(
        self,
        folder: Path,
        documents: Documents,
        logins: Documents,
        store_result: StoreBlob,
        redact: Redact,
        on_change: Callable[[], None],
        mask_also: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Create the source. `folder` contains the logs, `documents` stores the state of the servers."""
        self.folder = folder
        self.logins = logins
        self._documents = documents
        self.mask_also = mask_also  # called with every secret before its first use
        self._store_result = store_result
        self._redact = redact
        self._on_change = on_change
        self._lock = Lock()
        self._proxies: dict[str, ServerProxy] = {}
        self._loop: ServerLoop | None = None
        self._is_closed = self._moved = False
        self.stays_connected = False  # keep all servers connected, not only those in use
        self._warnings: dict[str, str] = {}  # by server
        if sys.version_info < (3, 12):
            # Import it while there is one thread: a concurrent import gives an incomplete module. The SDK and the
            # sandbox both use it, in different threads.
            import sysconfig

            sysconfig.get_config_vars()

    def keep_in(self, documents: Documents, logins: Documents) -> None:
        """Store the servers' state and logins in these documents. If they change, `configure` rebuilds all servers."""
        if (documents, logins) != (self._documents, self.logins):
            self._documents, self.logins, self._moved = documents, logins, True

    def configure(self, blocks: Mapping[str, ServerSettings]) -> Callable[[], None]:
        """Replace the settings. Unchanged servers are kept; the returned function closes the other servers."""
        known = {} if self._moved else self._proxies
        kept = {name: proxy for name, proxy in known.items() if blocks.get(name) == proxy.settings}
        self._moved = False
        gone = [name for name in self._proxies if name not in kept]
        needs = (self.folder, self._redact, self, self._store_result, self._documents)
        self._proxies = {name: kept.get(name) or ServerProxy(name, block, *needs) for name, block in blocks.items()}
        for name, proxy in self._proxies.items():
            if name in kept:
                proxy.reread_approvals()
            for secret in secrets_in(proxy.settings):
                self.mask_also(secret)

        def close_others() -> None:
            if self._loop is not None:
                self._loop.replace(gone, self.enabled())

        return close_others

    def load(self) -> Catalogue:
        offers = {name: proxy.catalogue() for name, proxy in self._proxies.items()}
        listed, ambiguous = keep_apart({name: offer.resources for name, offer in offers.items()})
        self._warnings = {name: self._proxies[name].shared_addresses(uris) for name, uris in ambiguous.items()}
        warnings = (
            Mistake(message=text, key=f"servers.{name}", severity="warning") for name, text in self._warnings.items()
        )
        return Catalogue(
            tools=tuple(tool for offer in offers.values() for tool in offer.tools),
            prompts=tuple(prompt for offer in offers.values() for prompt in offer.prompts),
            resources=tuple(listed),
            mistakes=(*(mistake for offer in offers.values() for mistake in offer.mistakes), *warnings),
        )

    # State

    def names(self) -> list[str]:
        return list(self._proxies)

    def enabled(self, among: Iterable[str] | None = None) -> list[str]:
        """Return the enabled servers, or those in `among` that are enabled."""
        names = None if among is None else set(among)
        proxies = self._proxies.items()
        return [name for name, proxy in proxies if proxy.settings.enabled and (names is None or name in names)]

    def statuses(self, allowed: Collection[str] | None = None) -> list[ServerStatus]:
        """Return the state of the servers. With an allow-list, return only the servers of allowed tools, with these
        tools only and without error messages, which may contain addresses and lines of logs.
        """
        if allowed is None:
            return [self._status(proxy) for proxy in self._proxies.values()]
        packs = {name.partition(".")[0] for name in allowed}
        statuses = [self._status(proxy, allowed) for proxy in self._proxies.values() if proxy.pack in packs]
        return [
            replace(status, error=status.error and (NEEDS_LOGIN if status.needs_login else DOWN), warning=None)
            for status in statuses
        ]

    def _status(self, proxy: ServerProxy, allowed: Collection[str] | None = None) -> ServerStatus:
        upstream = None if self._loop is None else self._loop.upstreams.get(proxy.name)
        unused: State = "connecting" if self.stays_connected else "idle"
        state: State = "disabled" if not proxy.settings.enabled else unused if upstream is None else upstream.state
        if state == "connecting" and upstream is not None and upstream.error:
            state = "disconnected"  # and reconnecting
        error, since = (None, None) if upstream is None else (upstream.error, upstream.since)
        return ServerStatus(
            name=proxy.name,
            state=state,
            transport="sse" if upstream is not None and upstream.way == "sse" else proxy.settings.transport,
            target=self._redact(proxy.settings.target),
            tools=sum(allowed is None or tool.name in allowed for tool in proxy.catalogue().tools),
            version=proxy.cached.version,
            error=None if state == "connected" else error,
            changed=tuple(proxy.changed(allowed)),
            refused=proxy.is_refused,
            since=since,
            needs_login=upstream is not None and upstream.needs_login,
            warning=self._warnings.get(proxy.name),
        )

    def health(self, allowed: Collection[str] | None = None) -> dict[str, Any]:
        """Return a short report on each server. `changed` names tools that differ from the approved ones."""
        statuses = self.statuses(allowed)
        is_wrong = any(status.refused or status.state == "disconnected" for status in statuses)
        is_starting = any(status.state == "connecting" for status in statuses)
        changed = {status.name: list(status.changed) for status in statuses if status.changed}
        return {
            "status": "degraded" if is_wrong else "connecting" if is_starting else "ok",
            "server_count": len(statuses),
            "servers": {status.name: "refused" if status.refused else status.state for status in statuses},
            **({"errors": errors} if (errors := {one.name: one.error for one in statuses if one.error}) else {}),
            **({"changed": changed} if changed else {}),
        }

    def brief_health(self) -> "dict[str, BriefHealth]":
        """Return each server's health in a word. Servers that were not needed yet are ok."""
        return {
            status.name: "changed" if status.changed else "down" if status.state == "disconnected" else "ok"
            for status in self.statuses()
        }

    def packs(self, allowed: Iterable[str] | None = None) -> list[str]:
        """Return the names in code of packs whose tools are not known yet; with an allow-list, only allowed packs."""
        wanted = None if allowed is None else {name.partition(".")[0] for name in allowed}
        packs = [self._proxies[name].pack for name in self.unlisted() if not self._proxies[name].is_listed]
        return [pack for pack in packs if wanted is None or pack in wanted]

    def unlisted(self, words: Iterable[str] | None = None) -> list[str]:
        """Return the servers with unknown or refused tools; with `words`, only servers that match a word."""
        names = None if words is None else set(words)
        return [
            name
            for name, proxy in self._proxies.items()
            if proxy.settings.enabled
            and (not proxy.is_listed or proxy.is_refused)
            and not (names is None and proxy.has_failed_lately)
            and (names is None or proxy.pack in names or as_identifier(proxy.pack) in names)
        ]

    def listings(self) -> tuple[Any, ...]:
        """Return a value that changes whenever the tools of a server change."""
        return tuple((name, proxy.cached.tools, proxy.is_refused) for name, proxy in self._proxies.items())

    def missing(self, pack: str) -> ToolFailure | None:
        """Return why the tools of a pack are missing, if it belongs to a server."""
        for proxy in self._proxies.values():
            if pack not in (proxy.pack, as_identifier(proxy.pack)):
                continue
            if not proxy.settings.enabled:
                return ToolFailure(f"the MCP server {proxy.name} is switched off in the config", reason="denied")
            if refusal := proxy.refusal():
                return refusal
            if not proxy.is_listed and self._loop is not None and (upstream := self._loop.upstreams.get(proxy.name)):
                return upstream.unavailable()
        return None

    def log_lines(self, name: str, lines: int) -> list[str]:
        return self._proxies[name].server_log.lines(lines)

    def log_after(self, name: str, position: str, lines: int) -> tuple[list[str], str]:
        """Return the lines after a position in the server's log, and the new position."""
        return self._proxies[name].server_log.lines_after(position, lines)

    def differences(self, name: str, allowed: Collection[str] | None = None) -> dict[str, list[str]]:
        """Return a line diff of each changed tool of a server, or each allowed one, against its approved definition."""
        return self._proxies[name].differences(allowed)

    def approve(self, name: str, seen: Mapping[str, list[str]] | None = None) -> list[str]:
        """Approve the current tools of a server if their differences match `seen`; return the changed tools as text."""
        changed = self._proxies[name].approve(seen)
        self._on_change()
        return changed

    async def login(self, name: str, say: Callable[[str], None]) -> str | None:
        """Ask the user to log in, at the address passed to `say`.

        Return the granted scopes, if the server names them.
        """
        from onetool.sources.mcp_servers.oauth import login

        url, auth = self._login_settings(name)
        return await login(name, url, auth, self.logins, say)

    async def begin_login(self, name: str) -> str:
        """Start a login and return its page. The tokens are stored and the server is connected again."""
        from onetool.sources.mcp_servers.oauth import login

        (url, auth), loop = self._login_settings(name), self._started_loop()
        return await loop.background.run(
            loop.begin_login(name, lambda show: login(name, url, auth, self.logins, lambda _: None, show))
        )

    def _login_settings(self, name: str) -> tuple[str, AuthValue]:
        settings = self._proxies[name].settings
        if settings.url is None:
            raise ToolFailure(f"the server {name} is started by a command, so no login is needed")
        return str(settings.url), settings.auth

    def logout(self, name: str) -> bool:
        """Delete the stored login, and return whether there was one. The login is not revoked at the server."""
        from onetool.http.login import forget

        return forget(self.logins, file_name(name))

    def copy_state(self, name: str, new: str) -> ServerCache:
        """Copy the state, approvals and login of a server to a new name, so that a rename approves nothing.

        Return the stored state of the old name. Raises DatabaseError.
        """
        proxy = self._proxies[name]
        ServerCache(self._documents, new, proxy.settings).write(proxy.cached)
        if (login := self.logins.read(file_name(name))) is not None:
            self.logins.write(file_name(new), login)
        return ServerCache(self._documents, name, proxy.settings)

    # Connections

    async def test(self, name: str) -> int:
        """Connect the server if needed, list its tools and return their number. Raises ToolFailure."""
        return await self.do(name, "tools/list", lambda connection, _: connection.count_tools(), True)

    def start(self) -> None:
        """Start connecting all servers concurrently, and return at once."""
        loop = self._started_loop()
        self.stays_connected = True
        self._run(loop.start(self.enabled()))

    async def wait_connected(
        self, names: Iterable[str] | None = None, retry: bool = False, seconds: float | None = None
    ) -> None:
        """Connect these servers, or all, and wait until each is connected or has failed, at most `seconds`.

        With `retry`, failed servers are tried again.
        """
        if wanted := self.enabled(names):
            loop = self._started_loop()
            await loop.background.run(loop.wait_connected(wanted, retry, seconds))

    async def reconnect(self, name: str) -> None:
        """End the connection to a server, and wait until it is connected again or has failed."""
        loop = self._started_loop()
        await loop.background.run(loop.reconnect(name))

    def wait_connected_sync(self, names: Iterable[str] | None = None, seconds: float | None = None) -> None:
        """Call `wait_connected` synchronously."""
        if wanted := self.enabled(names):
            self._run(self._started_loop().wait_connected(wanted, False, seconds)).result()

    async def do(self, server: str, what: str, work: "Work[T]", may_repeat: bool) -> T:
        """Run `work` with an open connection to a server. `may_repeat` means that the work may be done twice."""
        from onetool.sources.mcp_servers.upstream_calls import UpstreamCall

        loop = self._started_loop()
        return await loop.background.run(loop.do(server, what, work, may_repeat, UpstreamCall()))

    def close(self) -> None:
        """Close all connections and the event loop."""
        with self._lock:
            self._is_closed = True
            loop, self._loop = self._loop, None
        if loop is not None:
            loop.close()

    def _started_loop(self) -> "ServerLoop":
        with self._lock:
            if self._is_closed:
                raise ToolFailure("OneTool and its MCP servers are stopping", reason="source_unavailable")
            if self._loop is None:
                from onetool.sources.mcp_servers.loop import ServerLoop  # not needed for listing tools

                self._loop = ServerLoop(self)
            return self._loop

    def _run(self, work: Coroutine[Any, Any, T]) -> Any:
        return self._started_loop().background.submit(work)

    # Called by the connections

    def proxy(self, name: str) -> ServerProxy | None:
        return self._proxies.get(name)

    def listing_received(self, proxy: ServerProxy, listing: ServerListing) -> None:
        if self._proxies.get(proxy.name) is not proxy:  # the proxy has been replaced
            return
        offers = {kind: tuple(self._redact(listed)) for kind, listed in msgspec.structs.asdict(listing.offers).items()}
        clean = replace(  # a listing may contain secrets anywhere
            listing, tools=self._redact(listing.tools), offers=Offers(**offers), version=self._redact(listing.version)
        )
        if proxy.set_listing(clean):
            self._on_change()

    def reread_approvals(self) -> None:
        """Reload the approvals made by other processes."""
        for proxy in self._proxies.values():
            proxy.restore()
        changed = [proxy.reread_approvals() for proxy in self._proxies.values() if proxy.changes]
        if any(changed):
            self._on_change()
