"""The menu `run`: one tool that runs code. It costs a few hundred tokens, however many tools there are."""

import asyncio
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from onetool.app.describe import run_tool
from onetool.core.structured_content import HANDLE, RESULT
from onetool.interfaces.json_data import encode
from onetool.interfaces.mcp.client import ClientCaller
from onetool.interfaces.mcp.content import as_json, blocks_of, from_reply, media_blocks, text_block, with_notes
from onetool.interfaces.mcp.menus.entry import ArgumentCheck, MenuEntry
from onetool.script.run_result import RunResult

if TYPE_CHECKING:
    from onetool.app import App

LARGE = 20_000  # bytes: about two milliseconds
TASK_AFTER = 5.0  # seconds: code that is slower than this is better asked about than waited for


def entries(app: "App", allowed: Collection[str] | None) -> list[MenuEntry]:
    listing = run_tool(app.catalog, app.config, allowed)
    check = ArgumentCheck(listing)

    async def call(args: Mapping[str, Any], caller: ClientCaller) -> dict[str, Any]:
        check(args)
        result = await app.run(args["code"], allowed, source="mcp", progress=caller.progress)
        answer = with_notes(await _answer(app, result), result)
        app.runtime.record_reply(
            result, [block["text"] if block["type"] == "text" else block for block in answer["content"]]
        )
        return answer

    return [MenuEntry(listing=listing, call=call, task_after=TASK_AFTER)]


async def _answer(app: "App", result: RunResult) -> dict[str, Any]:
    answer, handle = await _content(app, result)
    if not app.config.run.structured or not result.ok:  # the text is the shorter form for a model
        return answer
    return {**answer, "structuredContent": {RESULT: result.data} if handle is None else {HANDLE: handle}}


async def _content(app: "App", result: RunResult) -> tuple[dict[str, Any], str | None]:
    """What a client shows, and where the whole is kept if it is too large for that."""
    blocks = None
    if result.ok:  # pictures and the like are no text
        blocks = await media_blocks(result.data, app.runtime.read_result, as_json) or blocks_of(result.data)
    if blocks is not None:
        return {"content": [*([text_block(result.printed)] if result.printed else []), *blocks]}, None
    if _size(result) > LARGE:  # writing it out takes a while, and others wait for the loop
        reply = await asyncio.to_thread(app.reply, result)
    else:
        reply = app.reply(result)
    return from_reply(reply), None if reply.stored is None else reply.stored.handle


def _size(result: RunResult) -> int:
    """About as many bytes as there are to write."""
    data = result.data
    size = len(data) if isinstance(data, str) else len(encode(data)) if isinstance(data, list | dict) else 0
    return len(result.printed) + size
