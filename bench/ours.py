"""OneTool as one of those that run code: `App.run`."""

import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

from bench.workload import LARGE, Codes, Run
from onetool import ToolSpec
from onetool.app import App
from onetool.sandbox.messages import FunctionCall, Returned

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
QUERY = {
    "type": "object",
    "properties": {"query": {"type": "string"}, "limit": {"type": "integer", "default": 5}},
    "required": ["query"],
}


class OneTool:
    codes = Codes(
        sum="1 + 1",
        calls="for n in range({n}):\n    r = bench.echo(n=n)\nr",
        gathered="import asyncio\nawait asyncio.gather(*[bench.echo(n=n) for n in range(10)])",
        large_inside="len(bench.large())",
        large_out=f'"x" * {LARGE}',
    )

    async def open(self, size: int) -> Run:
        async def echo(n: int) -> int:
            return n

        async def large() -> str:
            return "x" * LARGE

        async def other(query: str, limit: int = 5) -> int:
            return limit

        self._folder = tempfile.TemporaryDirectory()
        config = Path(self._folder.name) / "onetool.yaml"
        config.write_text("stats: {enabled: false}\n")  # the others keep none
        app = App.open(config)
        tools = {"bench.echo": (echo, NUMBER), "bench.large": (large, {"type": "object"})}
        tools |= {f"pack{number % 100}.tool_{number}": (other, QUERY) for number in range(size - 2)}
        for name, (handler, schema) in tools.items():
            app.catalog.registry.register(
                ToolSpec(name=name, description="One of many.", input_schema=schema, handler=handler)
            )
        self._app = app
        return app.run

    def exchanges(self, count: int = 500) -> list[float]:
        """Return the seconds of one exchange with a worker whose call is answered at once: what a call can't beat."""
        engine, started = self._app.runtime.engine, perf_counter()
        with engine._workers.sandbox.session() as session:
            pack = engine.tools_of(self._app.catalog.registry.snapshot()).value("bench")
            code = self.codes.calls.format(n=count)
            question = session.feed(code, {"bench": pack}, lambda *_: None)
            while isinstance(question, FunctionCall):
                question = session.resume(question, Returned(0))
        return [(perf_counter() - started) / count]

    def value(self, outcome: Any) -> Any:
        assert outcome.ok, outcome
        return outcome.data
