"""The shortest way to run code over a few tools, through the real engine and its sandbox."""

import asyncio

import pytest

from onetool import Executor, Registry, ToolSpec
from onetool.script.engine import Engine
from onetool.script.limits import Limits


class Scripts:
    """Tools that a test gives, and an engine that runs code over them."""

    def __init__(self):
        self.registry = Registry()
        self.executor = Executor(self.registry)
        self.engine = Engine(Limits(seconds=10), self.executor)

    def tool(self, name, handler, /, *required, **properties):
        """Add a tool: the names of what it needs, and the schemas of its parameters."""
        schema = {"type": "object", "properties": properties, "required": list(required)}
        self.registry.register(ToolSpec(name=name, description="d", input_schema=schema, handler=handler))

    def run(self, code, **options):
        return asyncio.run(self.engine.run(code, self.registry.snapshot(), **options))

    def value(self, code, **options):
        result = self.run(code, **options)
        assert result.ok, f"{result.error}\n{code}"
        return result.data

    def error(self, code, **options):
        result = self.run(code, **options)
        assert not result.ok, f"{result.data}\n{code}"
        return result.error


@pytest.fixture(scope="module")
def scripts_for_module():
    """For tests that only read from their tools: the sandbox starts once."""
    scripts = Scripts()
    yield scripts
    scripts.engine.close()


@pytest.fixture
def scripts():
    scripts = Scripts()
    yield scripts
    scripts.engine.close()
