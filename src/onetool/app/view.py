"""The parts of the app for tools: the view for the pack `ot`, and the handlers of tools of type `internal`."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from onetool._version import __version__
from onetool.core.context import current_call
from onetool.core.errors import ConfigError, ToolFailure
from onetool.core.principal import current_principal, stats_caller
from onetool.core.signature import as_identifier
from onetool.core.text import or_rather

if TYPE_CHECKING:
    from onetool.app.catalog import ToolCatalog
    from onetool.app.runtime import CurrentRuntime, RunCode, Runtime
    from onetool.ask.events import Answer
    from onetool.config.model import Snippet
    from onetool.core.registry import Snapshot
    from onetool.core.spec import Handler, ToolSpec
    from onetool.services.journal.summary import Summary
    from onetool.services.results import Page

SUFFIXES = (".html", ".htm")  # of reports
BEGINNING = 1_000  # bytes that contain the mark of a report

Search = Callable[[str, int, Collection[str] | None], "list[tuple[ToolSpec, float]]"]
Health = Callable[[Collection[str] | None], Awaitable[dict[str, Any]]]
Ask = Callable[..., Awaitable["Answer"]]


class AppView:
    """The parts of the app that the pack `ot` uses."""

    version = __version__

    def __init__(
        self, catalog: "ToolCatalog", current: "CurrentRuntime", health: "Health", reload: Callable[[], None]
    ) -> None:
        self._catalog = catalog
        self._current = current
        self._health = health
        self._reload = reload
        self._spellings: tuple[Snapshot, Mapping[str, str]] | None = None  # with their snapshot

    @property
    def aliases(self) -> Mapping[str, str]:
        return self._current.runtime.config.aliases

    def snippets(self, catalogue: "Snapshot", allowed: Collection[str] | None) -> "Mapping[str, Snippet]":
        from onetool.app.describe import snippets_for

        return snippets_for(catalogue, self._current.runtime.config, allowed)

    @property
    def instructions(self) -> Mapping[str, str]:
        return {name: of.instructions for name, of in self._current.runtime.config.texts.packs.items()}

    @property
    def has_documents(self) -> bool:
        return self._current.runtime.config.docs_url

    def spellings(self, catalogue: "Snapshot") -> Mapping[str, str]:
        from onetool.script.names import ScriptNames

        if self._spellings is None or self._spellings[0] is not catalogue:
            self._spellings = (catalogue, ScriptNames(catalogue).spellings())
        return self._spellings[1]

    def search(
        self, query: str, limit: int, allowed: Collection[str] | None, pack: str | None = None
    ) -> "list[tuple[ToolSpec, float]]":
        return self._catalog.search(query, limit, allowed, pack)

    def snippet(self, name: str) -> str:
        from onetool.script.snippets import snippet_definition

        return snippet_definition(name, self._current.runtime.config.snippets[name])

    def servers(self, allowed: Collection[str] | None) -> list[dict[str, Any]]:
        if self._catalog.servers is None:
            return []
        return [_server_summary(status) for status in self._catalog.servers.statuses(allowed)]

    def server_packs(self, allowed: Collection[str] | None) -> list[str]:
        return [as_identifier(pack) for pack in self._catalog.server_packs(allowed)]

    async def health(self, allowed: Collection[str] | None) -> dict[str, Any]:
        return await self._health(allowed)

    def page(self, handle: str, offset: int, limit: int, search: str | None, fuzzy: bool, column: int) -> "Page":
        return _page(self._current.runtime, handle, offset, limit, search, fuzzy, column)

    def load(self, handle: str) -> Any:
        runtime = self._current.runtime
        return runtime.results.load(handle, runtime.result_owner(handle))

    def publish(self, topic: str, message: str) -> str:
        return self._current.runtime.topics.publish(topic, message)

    def reload(self) -> None:
        if not current_principal.get().may("admin"):
            message = "reloading needs the role admin: use an admin's token, or send the server SIGHUP"
            raise ToolFailure(message, reason="role_needed")
        try:
            self._reload()
        except ConfigError as error:
            wrong = "; ".join(map(str, error.mistakes))
            raise ToolFailure(f"not reloaded, the previous config stays in effect: {wrong}", reason="config") from None

    def stats(self, period: str, tool: str | None, allowed: Collection[str] | None) -> "Summary":
        runtime = self._current.runtime
        if runtime.stats is None:
            file = runtime.config.path or "the config"
            raise ToolFailure(f"Statistics are disabled: stats.enabled is false in {file}")
        name = None if tool is None else self._catalog.real_name(tool)
        known = self._catalog.registry.names() if allowed is None else allowed
        summary = runtime.stats.summary(period, name, stats_caller())
        if name is not None and name not in known and (allowed is not None or not summary["total_calls"]):
            raise ToolFailure(f"Tool not found: {name:.200}{or_rather(name, known)}")
        if allowed is not None:
            summary["tools"] = [row for row in summary["tools"] if row["tool"] in allowed]
            summary["errors"] = [row for row in summary["errors"] if row["tool"] in allowed]
        return summary

    def write_report(self, path: str, stats: "Summary") -> str:
        """Write the report and return its path. Raises ToolFailure."""
        from onetool.services.file_access import PathRefusedError, Roots, why_not_written
        from onetool.services.journal.report import MARK, report

        if not path.lower().endswith(SUFFIXES):
            raise ToolFailure("the name of a report must end with .html")
        runtime = self._current.runtime
        roots = Roots(runtime.config.fs.roots, runtime.unwritable, within=runtime.settings("fs")["within"])
        try:
            if MARK.encode() not in roots.read_file(path, BEGINNING).data:
                raise ToolFailure("a file with this name exists and is not a report; choose another name")
        except PathRefusedError as refused:
            if refused.reason != "not_found":
                raise ToolFailure(why_not_written(refused, path, roots.paths)) from None
        try:
            roots.write_file(path, report(stats).encode())
        except PathRefusedError as refused:
            raise ToolFailure(why_not_written(refused, path, roots.paths)) from None
        return path


def _server_summary(status: Any) -> dict[str, Any]:
    """Summarize a server without its address, which may contain a password."""
    facts = {
        "name": status.name,
        "state": status.state,
        "transport": status.transport,
        "tools": status.tools,
    }
    version = " ".join((status.version or "").split())[:100]  # third-party text, on one line
    more = {"version": version, "error": status.error, "changed": list(status.changed)}
    return facts | {key: value for key, value in more.items() if value}


def _page(
    runtime: "Runtime",
    handle: str,
    offset: int,
    limit: int,
    search: str | None = None,
    fuzzy: bool = False,
    column: int = 1,
) -> "Page":
    """Return a page of a stored result. Only what is sent to a client is cut further."""
    from onetool.services.results.paging import MAX_BYTES

    owner = runtime.result_owner(handle)
    return runtime.results.page(handle, owner, offset, limit, search, fuzzy, MAX_BYTES, column)


# The services that a declared tool can use with `implementation: {type: internal, handler: …}`.


def internal_handlers(
    *, find: "Search", state: "Health", current: "CurrentRuntime", run_code: "RunCode", ask_model: "Ask"
) -> "dict[str, Handler]":
    def search(query: str, limit: int = 5) -> list[dict[str, Any]]:
        found = find(query, limit, _callers_allow_list())
        return [{"name": spec.name, "description": spec.description, "score": score} for spec, score in found]

    async def health() -> dict[str, Any]:
        return await state(_callers_allow_list())

    def stats(tool: str | None = None) -> dict[str, Any]:
        if (counted := current.runtime.stats) is None:
            return {"error": "stats are disabled: stats.enabled is false"}
        return counted.facts(tool, stats_caller())

    async def run(code: str) -> Any:
        return (await run_code(code)).value()

    def results(handle: str, offset: int = 1, limit: int = 100, column: int = 1) -> "Page | str":
        from onetool.services.results import HandleNotFoundError, ResultExpiredError

        try:
            return _page(current.runtime, handle, offset, limit, column=column)
        except (HandleNotFoundError, ResultExpiredError) as gone:
            return str(gone)

    async def ask(prompt: str, session: str | None = None) -> str | None:
        """Ask with only the caller's read-only tools, because other calls can't be approved here."""
        from onetool.ask.errors import AskError

        try:
            return (await ask_model(prompt, session=session, within=_callers_allow_list())).answer
        except AskError as error:
            raise ToolFailure(str(error), error.reason, error.hints) from None

    return {"search": search, "health": health, "stats": stats, "run": run, "results": results, "ask": ask}


def _callers_allow_list() -> "Collection[str] | None":
    """Return the tools that the caller of the running tool may call."""
    context = current_call.get()
    return None if context is None else context.allowed
