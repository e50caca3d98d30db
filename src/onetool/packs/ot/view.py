"""The interface through which the pack `ot` sees the app, and the catalogue that the running call started with."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from onetool.core.context import current_call
from onetool.core.registry import Snapshot
from onetool.core.spec import ToolSpec
from onetool.services.results.paging import Page

if TYPE_CHECKING:
    from onetool.services.stats import Summary


class SnippetView(Protocol):
    """A snippet, for its readers."""

    @property
    def description(self) -> str: ...


class View(Protocol):
    """What `ot` needs of the app. Tools come from the catalogue that the running call started with."""

    @property
    def version(self) -> str: ...

    @property
    def aliases(self) -> Mapping[str, str]:
        """Names and the tools that they stand for."""
        ...

    @property
    def snippets(self) -> Mapping[str, SnippetView]: ...

    @property
    def instructions(self) -> Mapping[str, str]:
        """The texts on how packs are best used."""
        ...

    @property
    def has_documents(self) -> bool:
        """Whether packs without an address of their own have one among the documents."""
        ...

    def words(self, catalogue: Snapshot) -> Mapping[str, str]:
        """Every tool's own name, and what code writes for it."""
        ...

    def search(self, query: str, limit: int, allowed: Collection[str] | None) -> list[tuple[ToolSpec, float]]: ...

    def snippet(self, name: str) -> str:
        """A snippet's definition and an example, as text."""
        ...

    def servers(self, allowed: Collection[str] | None) -> list[dict[str, Any]]: ...

    def server_packs(self, allowed: Collection[str] | None) -> list[str]:
        """The names of MCP servers in code, also of those whose tools are not known yet."""
        ...

    async def health(self, allowed: Collection[str] | None) -> dict[str, Any]: ...

    def page(self, handle: str, offset: int, limit: int, search: str | None, fuzzy: bool, column: int) -> Page:
        """Some lines of a stored result of the running call's caller."""
        ...

    def publish(self, topic: str, message: str) -> str: ...

    def reload(self) -> None:
        """Reload everything or nothing; raises ToolFailure with the reason."""
        ...

    def stats(self, period: str, tool: str | None, allowed: Collection[str] | None) -> "Summary":
        """The stats, with only those names that are allowed. Raises ToolFailure if they can't be read."""
        ...

    def write_report(self, path: str, stats: "Summary") -> str:
        """A page of them, in a file below an allowed folder; gives its path. ToolFailure says why not."""
        ...


# The running call


def current_catalogue() -> tuple[Snapshot, Collection[str] | None]:
    """The catalogue that the running call belongs to, and the allow-list that it is under."""
    context = current_call.get()
    if context is None or context.environment is None:
        return Snapshot({}), None
    return context.tools or context.environment.snapshot(), context.allowed
