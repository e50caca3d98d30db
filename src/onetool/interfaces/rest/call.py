"""The ASGI app below /call: `POST /call/time.now` calls a tool by its name, for people with curl.

The body is the arguments, and the response the bare value. A tool that ran and failed is a problem, with status 424.
All else is as `invoke` has it; a stream, too, with the same events.
"""

from functools import partial
from typing import Any

from onetool.core.call import ToolResult
from onetool.interfaces.asgi import Receive, Scope, Send, read_body, read_headers
from onetool.interfaces.json_data import check_content_type, encode
from onetool.interfaces.rest.app import RestApp
from onetool.interfaces.rest.invoke import answer_call, refuse_unrun
from onetool.interfaces.rest.problem import RestError
from onetool.interfaces.rest.query import percent_decoded, read_query
from onetool.interfaces.rest.request import RestRequest, RestResponse, json_body
from onetool.interfaces.rest.routing import CALL_METHODS, CALL_PATH

_RELEVANT_HEADERS = frozenset((b"content-type", b"accept"))


class CallApp(RestApp):
    """The route /call and everything below."""

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> RestResponse | None:
        name = _tool_name(scope["raw_path"])
        if scope["method"] == "OPTIONS":
            return RestResponse(204, headers=((b"allow", ", ".join(CALL_METHODS).encode()),))
        read_query(scope["query_string"], {})
        headers = read_headers(scope, _RELEVANT_HEADERS)
        request = RestRequest(self._context, (name,), {}, headers, scope, receive, send)
        start = partial(self._context.call, name)
        return await answer_call(request, await _read_args(request), start, bare_value, args_at="")


def _tool_name(raw: bytes) -> str:
    """All that is behind /call/: names may have any sign in them."""
    try:
        name = percent_decoded(raw.removeprefix(CALL_PATH.encode()).removeprefix(b"/"))
    except ValueError as error:
        raise RestError(400, "bad_path", f"The path can't be read: {error}.", part="path", pointer="/name") from None
    if not name:
        raise RestError(404, "not_found", f"Name a tool: POST {CALL_PATH}/time.now; GET /tools/tools lists them.")
    return name


async def _read_args(request: RestRequest) -> dict[str, Any]:
    if b"content-type" not in request.headers:  # interfaces/http lets only those through that say they have no body
        if await read_body(request.receive):
            check_content_type(None)
        return {}
    args = await json_body(request.headers, request.receive, empty={})
    if not isinstance(args, dict):
        message = "The body: expected a JSON object with the arguments by their names."
        raise RestError(400, "invalid", message, part="body", pointer="")
    return args


def bare_value(result: ToolResult) -> bytes:
    """The value as JSON. Raises RestError if there is none."""
    error = result.error
    if error is None:
        return encode(result.data)
    refuse_unrun(error, "")
    raise RestError(424, error.code, error.message, reason=error.reason, hints=error.hints)
