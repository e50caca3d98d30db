"""What several test modules need: small tools, and the shortest way to call them."""

import asyncio

from onetool import Executor, Registry, ToolCall, ToolSpec

NO_ARGUMENTS = {"type": "object", "properties": {}}


def definition(name="weather", **changes):
    """A complete definition of a mock tool; changes replace its fields, None removes one."""
    fields = {
        "name": name,
        "description": "Says what the weather is like.",
        "type": "function",
        "handler": name,
        "parameters": NO_ARGUMENTS,
        "implementation": {"type": "mock", "mock_response": {"c": 21}},
    }
    return {key: value for key, value in (fields | changes).items() if value is not None}


def executor_for(handler, schema=NO_ARGUMENTS, **options):
    """An executor with one tool, `t`."""
    registry = Registry()
    registry.register(ToolSpec(name="t", description="d", input_schema=schema, handler=handler))
    return Executor(registry, **options)


def run(executor, name="t", /, **args):
    """Call a tool and wait for the result."""
    return asyncio.run(executor.execute(ToolCall(id="1", name=name, args=args, source="test")))
