"""The services that a declared tool may reach with `implementation: {type: internal, handler: …}`."""

from typing import TYPE_CHECKING, Any

from onetool.core.caller import owner
from onetool.core.context import current_call
from onetool.core.errors import ToolFailure

if TYPE_CHECKING:
    from collections.abc import Collection

    from onetool.app.app import App
    from onetool.core.spec import Handler
    from onetool.services.results import Page


def services(app: "App") -> "dict[str, Handler]":
    async def search(query: str, limit: int = 5) -> list[dict[str, Any]]:
        found = app.search(query, limit, _allowed())
        return [{"name": spec.name, "description": spec.description, "score": score} for spec, score in found]

    async def health() -> dict[str, Any]:
        return await app.looked_after(_allowed())

    def stats(tool: str | None = None) -> dict[str, Any]:
        return app.stats.facts(tool) if app.stats else {"error": "stats are disabled: stats.enabled is false"}

    async def run(code: str) -> Any:
        return (await app.run(code)).value()

    def results(handle: str, offset: int = 1, limit: int = 100, column: int = 1) -> "Page | str":
        from onetool.services.results import HandleNotFoundError, ResultExpiredError

        try:
            return app.results.page(handle, owner(), offset, limit, column=column)
        except (HandleNotFoundError, ResultExpiredError) as gone:
            return str(gone)

    async def ask(prompt: str, session: str | None = None) -> str | None:
        """With the tools that its caller may call, and of these only such as change nothing: nobody is asked here."""
        from onetool.ask.errors import AskError

        try:
            return (await app.ask(prompt, session=session, within=_allowed())).answer
        except AskError as error:
            raise ToolFailure(str(error), error.reason, error.hints) from None

    return {"search": search, "health": health, "stats": stats, "run": run, "results": results, "ask": ask}


def _allowed() -> "Collection[str] | None":
    """What the caller of the running tool may call."""
    context = current_call.get()
    return None if context is None else context.allowed
