"""Reads the files that HTTP tools send: stored results of the caller, and paths through the tool `fs.read_file`."""

from base64 import b64decode
from collections.abc import Callable

from onetool.core.call import ToolCall, new_id
from onetool.core.context import Environment, current_call
from onetool.core.errors import ToolFailure
from onetool.http.files import FileSources, file_too_large
from onetool.packs.fs import MAX_BYTES
from onetool.services.results import ResultTooLargeError

READ_FILE = "fs.read_file"
ENVELOPE = 300  # bytes of a stored data: URL besides its Base64
OTHERWISE = "give the content as a data: URL (data:text/plain;name=a.txt,Hello), or the handle of a stored result"


def file_sources(environment: Environment, results: Callable[[str, int], str]) -> FileSources:
    """Return the sources of files for HTTP tools. `results` reads a stored result of the caller, up to a size."""

    async def read_path(path: str, max_bytes: int) -> bytes:
        """Call `fs.read_file` on behalf of the running tool's caller, with the caller's allow-list.

        The call is recorded as usual.
        """
        outer = current_call.get()
        most = min(max_bytes, MAX_BYTES)
        args = {"path": path, "maxBytes": max(most, 1), "encoding": "base64"}
        call = ToolCall(new_id(), READ_FILE, args, "run" if outer is None else outer.call.source)
        result = await environment.call_tool(call)
        error = result.error
        if error is None:
            return b64decode(result.data)
        if error.code == "tool_not_found":
            why = f"is a path, and only callers who may call {READ_FILE} can give one ({error.message})"
            raise ToolFailure(f"{why}; {OTHERWISE}", "denied")
        if error.reason == "too_large":
            raise file_too_large(most)
        raise ToolFailure(f"can't be read as a path: {error.message} If it isn't one, {OTHERWISE}", error.reason)

    def read_result(handle: str, max_bytes: int) -> str:
        try:
            return results(handle, max_bytes * 4 // 3 + ENVELOPE)
        except ResultTooLargeError:
            raise file_too_large(max_bytes) from None
        except ToolFailure as failure:
            raise ToolFailure(f"can't be read as a stored result: {failure}", failure.reason, failure.hints) from None

    return FileSources(read_result, read_path)
