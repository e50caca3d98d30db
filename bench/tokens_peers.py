"""FastMCP over stdio with the tools of real servers: `python -m bench.tokens_peers direct|search|code FILE`.

Imports nothing of ours: it lives in an environment of its own. The file has the definitions; nothing is ever called.
"""

import json
import sys
from pathlib import Path
from typing import Any


def server(kind: str, definitions: list[dict[str, Any]]) -> Any:
    from fastmcp import FastMCP  # pyright: ignore[reportMissingImports]
    from fastmcp.tools.base import Tool  # pyright: ignore[reportMissingImports]

    def never() -> str:
        """Answers are not counted, so that nothing is called."""
        raise NotImplementedError

    made = FastMCP("bench", transforms=_transforms(kind))
    one = Tool.from_function(never, output_schema=None)
    for definition in definitions:
        changes = {key: definition[key] for key in ("name", "description")}
        made.add_tool(one.model_copy(update={**changes, "parameters": definition["inputSchema"]}))
    return made


def _transforms(kind: str) -> list[Any]:
    """As they are by default."""
    if kind == "search":
        from fastmcp.server.transforms.search import BM25SearchTransform  # pyright: ignore[reportMissingImports]

        return [BM25SearchTransform()]
    if kind == "code":
        from fastmcp.experimental.transforms.code_mode import CodeMode  # pyright: ignore[reportMissingImports]

        return [CodeMode()]
    return []


if __name__ == "__main__":
    kind, file = sys.argv[1:]
    server(kind, json.loads(Path(file).read_text())["tools"]).run("stdio", show_banner=False)
