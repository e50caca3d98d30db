"""The menu of one tool: `run(code)`. It costs a model the same few hundred tokens, however many tools there are."""

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

from onetool.app import App
from onetool.core.spec import ToolSpec
from onetool.core.spelling import spelled
from onetool.interfaces.encoding import encode
from onetool.interfaces.mcp.caller import ClientCaller
from onetool.interfaces.mcp.content import as_json, blocks_of, from_reply, text_block
from onetool.interfaces.mcp.describe import RUN_SCHEMA, run_description
from onetool.interfaces.mcp.media import restored
from onetool.interfaces.mcp.menus.entry import Checked, Entry
from onetool.script.names import Names
from onetool.script.outcome import RunResult

LARGE = 20_000  # bytes: about two milliseconds
TASK_AFTER = 5.0  # seconds: code that is slower than this is better asked about than waited for


def entries(app: App, allowed: Collection[str] | None) -> list[Entry]:
    listing = {
        "name": "run",
        "title": "Run code over all tools",
        "description": run_description(*_words(app, allowed), text=app.config.texts.run),
        "inputSchema": RUN_SCHEMA,
    }
    check = Checked(listing)

    async def call(args: Mapping[str, Any], caller: ClientCaller) -> dict[str, Any]:
        check(args)
        result = await app.run(args["code"], allowed, source="mcp", progress=caller.progress)
        answer = await _answer(app, result)
        app.replied(result, [block["text"] if block["type"] == "text" else block for block in answer["content"]])
        return answer

    return [Entry(listing=listing, call=call, task_after=TASK_AFTER)]


async def _answer(app: App, result: RunResult) -> dict[str, Any]:
    if result.ok and (media := await restored(result.data, app.kept, as_json)) is not None:
        return {"content": [*([text_block(result.printed)] if result.printed else []), *media]}
    if result.ok and (blocks := blocks_of(result.data)) is not None:  # pictures and the like are no text
        return {"content": [*([text_block(result.printed)] if result.printed else []), *blocks]}
    if _weight(result) > LARGE:  # writing it out takes a while, and others wait for the loop
        return from_reply(await asyncio.to_thread(app.reply, result))
    return from_reply(app.reply(result))


def _weight(result: RunResult) -> int:
    """About as many bytes as there are to write."""
    data = result.data
    size = len(data) if isinstance(data, str) else len(encode(data)) if isinstance(data, list | dict) else 0
    return len(result.printed) + size


def _words(app: App, allowed: Collection[str] | None) -> tuple[list[str], list[str], list[str]]:
    """What code can say: packs, functions without a pack, and snippets."""
    names = Names(app.registry.snapshot(), app.config.aliases)
    shown = {spec.name for spec in app.tools(allowed)}
    packs = [word for word in names.words() if (pack := names.pack(word)) and _any(pack.tools, shown)]
    functions = [word for word, spec in names.functions.items() if spec.name in shown]
    if app.servers is not None:  # also those that are still starting
        packs += [word for pack in app.servers.packs(allowed) if (word := spelled(pack)) not in packs]
    return packs, functions, list(app.config.snippets)


def _any(tools: Mapping[str, ToolSpec], shown: Collection[str]) -> bool:
    return any(spec.name in shown for spec in tools.values())
