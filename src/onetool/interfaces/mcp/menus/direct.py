"""The menu `direct`: every tool under its name or alias, for small sets and clients that select tools themselves."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from onetool.core.call import ToolCall, new_id
from onetool.core.spec import ToolSpec
from onetool.formats import ProviderNames, provider_tools
from onetool.interfaces.mcp.client import ClientCaller
from onetool.interfaces.mcp.content import from_result, promise_of
from onetool.interfaces.mcp.menus.entry import TASK_GRACE, MenuEntry

if TYPE_CHECKING:
    from onetool.app import App


def entries(app: "App", allowed: Collection[str] | None) -> list[MenuEntry]:
    return [_entry(app, spec, listing, also, allowed) for spec, listing, also in listed(app, allowed)]


def listed(app: "App", allowed: Collection[str] | None) -> list[tuple[ToolSpec, dict[str, Any], str]]:
    """Every tool with its listing, and its own name if it is listed under an alias."""
    specs = app.tools(allowed)
    listings = provider_tools(specs, "mcp")
    taken = {listing["name"] for listing in listings}
    aliases = _aliases(app, specs, taken)
    return [(spec, one | aliases.get(spec.name, {}), one["name"]) for spec, one in zip(specs, listings, strict=True)]


def _aliases(app: "App", specs: list[ToolSpec], taken: Collection[str]) -> dict[str, dict[str, Any]]:
    """The first alias of each tool that is not the name of another tool."""
    known = {spec.name for spec in specs}
    found: dict[str, dict[str, Any]] = {}
    for alias, target in app.config.aliases.items():
        fits = ProviderNames([ToolSpec(name=alias, description="")], "mcp").to_provider(alias) == alias
        if target in known and target not in found and fits and alias not in taken:
            found[target] = {"name": alias}
    return found


def _entry(app: "App", spec: ToolSpec, listing: dict[str, Any], own: str, allowed: Collection[str] | None) -> MenuEntry:
    promise = promise_of(spec, listing.get("outputSchema"))

    async def call(args: Mapping[str, Any], caller: ClientCaller) -> dict[str, Any]:
        result = await app.call(ToolCall(new_id(), spec.name, args, "mcp"), allowed, caller.progress)
        return await from_result(
            result,
            app.config.results.inline_bytes,
            app.runtime.store_result,
            app.runtime.read_result,
            _read_on,
            promise,
        )

    return MenuEntry(
        listing=listing,
        call=call,
        task_after=None if spec.task is None else TASK_GRACE,
        needs_task=spec.task == "required",
        also=() if own == listing["name"] else (own,),
    )


def _read_on(handle: str, offset: int) -> str:
    return f'the tool ot__result with {{"handle": "{handle}", "offset": {offset}}}'
