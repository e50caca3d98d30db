"""The menu of one tool: `run(code)`. It costs a model the same few hundred tokens, however many tools there are."""

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

from onetool.app import App
from onetool.app.run_tool import run_tool
from onetool.interfaces.encoding import encode
from onetool.interfaces.mcp.caller import ClientCaller
from onetool.interfaces.mcp.content import as_json, blocks_of, from_reply, text_block
from onetool.interfaces.mcp.media import restored
from onetool.interfaces.mcp.menus.entry import Checked, Entry
from onetool.script.outcome import RunResult

LARGE = 20_000  # bytes: about two milliseconds
TASK_AFTER = 5.0  # seconds: code that is slower than this is better asked about than waited for


def entries(app: App, allowed: Collection[str] | None) -> list[Entry]:
    listing = run_tool(app, allowed)
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
