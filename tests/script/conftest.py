"""The shortest way to run code over a few tools, through a real app, its engine and its sandbox."""

import asyncio

import pytest

from onetool import ToolSpec
from onetool.app import App


class Scripts:
    """Tools that a test gives, and an app that runs code over them."""

    def __init__(self, folder, timeout_s=10):
        config = folder / "onetool.yaml"
        config.write_text(f"stats: {{enabled: false}}\nrun: {{timeout_s: {timeout_s}}}\n")
        self.app = App.open(config)

    def tool(self, name, handler, /, *required, **properties):
        """Add a tool: the names of what it needs, and the schemas of its parameters."""
        schema = {"type": "object", "properties": properties, "required": list(required)}
        return self.register(name, schema, handler)

    def register(self, name, schema, handler, **more):
        spec = ToolSpec(name=name, description="d", input_schema=schema, handler=handler, **more)
        return self.app.catalog.registry.register(spec)

    def run(self, code, **options):
        return asyncio.run(self.app.run(code, **options))

    def value(self, code, **options):
        result = self.run(code, **options)
        assert result.ok, f"{result.error}\n{code}"
        return result.data

    def error(self, code, **options):
        result = self.run(code, **options)
        assert not result.ok, f"{result.data}\n{code}"
        return result.error


@pytest.fixture(scope="module")
def scripts_for_module(tmp_path_factory):
    """For tests that only read from their tools: the sandbox starts once."""
    scripts = Scripts(tmp_path_factory.mktemp("app"))
    yield scripts
    scripts.app.close()


@pytest.fixture
def scripts(tmp_path):
    scripts = Scripts(tmp_path)
    yield scripts
    scripts.app.close()
