"""The peers that `run` is compared with. They live in .venv-bench: `make bench-peers`."""

import json
from typing import Any

from bench.workload import LARGE, Codes, Run


class FastMCP:
    """FastMCP's code mode: its `execute` called on the server itself, without a client and a wire between."""

    codes = Codes(
        sum="return 1 + 1",
        calls='for n in range({n}):\n    r = await call_tool("echo", {{"n": n}})\nreturn r["result"]',
        gathered='import asyncio\nreturn await asyncio.gather(*[call_tool("echo", {"n": n}) for n in range(10)])',
        large_inside='r = await call_tool("large", {})\nreturn len(r["result"])',
        large_out=f'return "x" * {LARGE}',
    )

    async def open(self, size: int) -> Run:
        from fastmcp import FastMCP as Server  # pyright: ignore[reportMissingImports]
        from fastmcp.experimental.transforms.code_mode import CodeMode  # pyright: ignore[reportMissingImports]
        from fastmcp.tools.base import Tool  # pyright: ignore[reportMissingImports]

        async def echo(n: int) -> int:
            """Give it back."""
            return n

        async def large() -> str:
            """A lot of text."""
            return "x" * LARGE

        async def other(query: str, limit: int = 5) -> int:
            """One of many."""
            return limit

        server = Server("bench", transforms=[CodeMode()])
        one = Tool.from_function(other)
        for number in range(size - 2):  # copies: making each of its function takes minutes
            server.add_tool(one.model_copy(update={"name": f"tool_{number}"}))
        server.tool(echo)
        server.tool(large)

        async def run(code: str) -> Any:
            return await server.call_tool("execute", {"code": code})

        return run

    def value(self, outcome: Any) -> Any:
        text = outcome.content[0].text
        return text if text.startswith("x") else json.loads(text)


class Smolagents:
    """smolagents' interpreter in this process. It knows no await, so its tools are plain functions."""

    codes = Codes(
        sum="1 + 1",
        calls="for n in range({n}):\n    r = echo(n=n)\nr",
        gathered=None,
        large_inside="len(large())",
        large_out=f'"x" * {LARGE}',
    )

    async def open(self, size: int) -> Run:
        from smolagents.local_python_executor import LocalPythonExecutor  # pyright: ignore[reportMissingImports]

        def echo(n: int) -> int:
            return n

        def large() -> str:
            return "x" * LARGE

        def other(query: str, limit: int = 5) -> int:
            return limit

        executor = LocalPythonExecutor([])
        others = {f"tool_{number}": other for number in range(size - 2)}
        executor.send_tools({**others, "echo": echo, "large": large})

        async def run(code: str) -> Any:
            return executor(code)

        return run

    def value(self, outcome: Any) -> Any:
        return outcome.output


PEERS = {"fastmcp": FastMCP, "smolagents": Smolagents}
