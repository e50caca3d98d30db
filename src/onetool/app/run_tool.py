"""`run` as a model is shown it: one tool, with the names of what its code can call."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from onetool.app.describe import RUN_SCHEMA, run_description
from onetool.core.spec import ToolSpec
from onetool.core.spelling import spelled
from onetool.script.names import Names

if TYPE_CHECKING:
    from onetool.app.app import App


def run_tool(app: "App", allowed: Collection[str] | None) -> dict[str, Any]:
    return {
        "name": "run",
        "title": "Run code over all tools",
        "description": run_description(*_words(app, allowed), text=app.config.texts.run),
        "inputSchema": RUN_SCHEMA,
    }


def _words(app: "App", allowed: Collection[str] | None) -> tuple[list[str], list[str], list[str]]:
    """What code can say: packs, functions without a pack, and snippets."""
    names = Names(app.registry.snapshot(), app.config.aliases)
    shown = {spec.name for spec in app.tools(allowed)}
    packs = [word for word in names.words() if (pack := names.pack(word)) and _any(pack.tools, shown)]
    functions = [word for word, spec in names.functions.items() if spec.name in shown]
    if app.servers is not None:  # also those that are still starting
        packs += [word for pack in app.servers.packs(allowed) if (word := spelled(pack)) not in packs]
    return packs, functions, list(app.config.snippets)


def _any(tools: Mapping[str, ToolSpec], shown: Collection[str]) -> bool:
    """Whether one of its tools is shown. Those without a dot are named as functions already."""
    return any(spec.name in shown and "." in spec.name for spec in tools.values())
