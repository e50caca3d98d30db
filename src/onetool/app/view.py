"""The app as the pack `ot` sees it."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from onetool import __version__
from onetool.core.caller import owner
from onetool.core.errors import ConfigError, ToolFailure

if TYPE_CHECKING:
    from onetool.app.app import App
    from onetool.config.model import Snippet
    from onetool.core.registry import Snapshot
    from onetool.core.spec import ToolSpec
    from onetool.services.results import Page
    from onetool.services.stats import Summary


class AppView:
    version = __version__

    def __init__(self, app: "App") -> None:
        self._app = app

    @property
    def aliases(self) -> Mapping[str, str]:
        return self._app.config.aliases

    @property
    def snippets(self) -> "Mapping[str, Snippet]":
        return self._app.config.snippets

    @property
    def instructions(self) -> Mapping[str, str]:
        return {name: of.instructions for name, of in self._app.config.texts.packs.items()}

    @property
    def has_documents(self) -> bool:
        return self._app.config.docs_url

    def words(self, catalogue: "Snapshot") -> Mapping[str, str]:
        from onetool.script.names import Names

        return Names(catalogue).spellings()

    def search(self, query: str, limit: int, allowed: Collection[str] | None) -> "list[tuple[ToolSpec, float]]":
        return self._app.search(query, limit, allowed)

    def snippet(self, name: str) -> str:
        from onetool.script.snippets.readable import definition

        return definition(name, self._app.config.snippets[name])

    def servers(self, allowed: Collection[str] | None) -> list[dict[str, Any]]:
        if self._app.servers is None:
            return []
        return [_told(status) for status in self._app.servers.statuses(allowed)]

    def server_packs(self, allowed: Collection[str] | None) -> list[str]:
        from onetool.core.spelling import spelled

        return [] if self._app.servers is None else [spelled(pack) for pack in self._app.servers.packs(allowed)]

    async def health(self, allowed: Collection[str] | None) -> dict[str, Any]:
        return await self._app.looked_after(allowed)

    def page(self, handle: str, offset: int, limit: int, search: str | None, fuzzy: bool, column: int) -> "Page":
        return self._app.results.page(handle, owner(), offset, limit, search, fuzzy, column=column)

    def publish(self, topic: str, message: str) -> str:
        return self._app.topics.publish(topic, message)

    def reload(self) -> None:
        try:
            self._app.reload()
        except ConfigError as error:
            wrong = "; ".join(map(str, error.mistakes))
            raise ToolFailure(f"not reloaded, what was in force stays: {wrong}", reason="config") from None

    def stats(self, period: str, tool: str | None, allowed: Collection[str] | None) -> "Summary":
        if self._app.stats is None:
            file = self._app.config.path or "the config"
            raise ToolFailure(f"Statistics are disabled: stats.enabled is false in {file}")
        name = None if tool is None else self._app.real_name(tool)
        known = self._app.registry.names() if allowed is None else allowed
        told = self._app.stats.summary(period, name)
        if name is not None and name not in known and (allowed is not None or not told["total_calls"]):
            from onetool.core.nearest import or_rather

            raise ToolFailure(f"Tool not found: {name:.200}{or_rather(name, known)}")
        if allowed is not None:
            told["tools"] = [row for row in told["tools"] if row["tool"] in allowed]
            told["errors"] = [row for row in told["errors"] if row["tool"] in allowed]
        return told

    def write_report(self, path: str, stats: "Summary") -> str:
        from onetool.app.reports import write_report

        return write_report(self._app, path, stats)


def _told(status: Any) -> dict[str, Any]:
    """A server in short. Not how it is reached: there may be a password in that."""
    facts = {
        "name": status.name,
        "state": status.state,
        "transport": status.transport,
        "tools": status.tools,
    }
    version = " ".join((status.version or "").split())[:100]  # a stranger's words, on one line
    more = {"version": version, "error": status.error, "changed": list(status.changed)}
    return facts | {key: value for key, value in more.items() if value}
