"""What the suite runs as a client: OneTool with the scenario's server in its config, calling every tool that it offers.

    python -m tests.conformance.proxy_client URL

The suite says in the environment which scenario it is, and gives what a person would have to know: a client's id, the
calls to make. Where the server wants a login, a browser that agrees to everything stands in for the person.
"""

import asyncio
import json
import os
import sys
import tempfile
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from threading import Thread
from typing import Any

from onetool import App, ToolCall, ToolResult, ToolSpec
from onetool.core.call import Caller, ForPerson, current_caller
from onetool.core.errors import OneToolError
from onetool.database.documents import Documents
from onetool.database.sqlite import SqliteDatabase
from onetool.sources.mcp_servers.oauth import login

SERVER = "there"
LOGINS = 3  # a server that wants yet another one is not served
# Documents about a client lie on the web; this one is what the suite expects, and never fetched.
DOCUMENT = "https://conformance-test.local/client-metadata.json"
MADE_UP = {"string": "text", "integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}, "null": None}


class Agreeing(Caller):
    """A person who sends every form as it came."""

    owner = ""

    def can(self, what: str) -> bool:
        return what == "elicitation"

    def lacks(self, error: Exception) -> None: ...

    def log(self, level: Any, data: Any, logger: str | None) -> None: ...

    async def ask(self, question: Any) -> Any:
        assert isinstance(question, ForPerson)
        fields = question.schema.get("properties", {})
        needed = question.schema.get("required", ())
        return {
            name: field.get("default", MADE_UP[field["type"]])
            for name, field in fields.items()
            if "default" in field or name in needed
        }


def main() -> int:
    url, scenario = sys.argv[-1], os.environ["MCP_CONFORMANCE_SCENARIO"]
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    with tempfile.TemporaryDirectory(prefix="onetool-client-") as folder:
        block = {"url": url, "timeout": 15, "connect_timeout": 10, **_auth(scenario, context)}
        config = Path(folder) / "onetool.yaml"
        config.write_text(json.dumps({"servers": {SERVER: block}, "stats": {"enabled": False}}), encoding="utf-8")
        os.environ["ONETOOL_HOME"] = folder
        try:
            return asyncio.run(_Client(config, block).run(context.get("toolCalls")))
        except OneToolError as error:
            print(error, file=sys.stderr)
            return 1


def _auth(scenario: str, context: dict[str, Any]) -> dict[str, Any]:
    if not scenario.startswith("auth/"):
        return {}
    known = {key: context[key] for key in ("client_id", "client_secret") if key in context}
    if "client-credentials" in scenario:
        return {"auth": {"type": "client_credentials", **known}}
    document = {"client_metadata_url": DOCUMENT} if scenario == "auth/basic-cimd" else {}
    return {"auth": {"type": "oauth", **known, **document}}


class _Client:
    """Connects, logs in where it is told to, and calls."""

    def __init__(self, config: Path, block: dict[str, Any]) -> None:
        self._config = config
        self._block = block
        self._logins = 0

    async def run(self, wanted: list[dict[str, Any]] | None) -> int:
        """The exit code: 0 when every call went well."""
        current_caller.set(Agreeing())
        while True:
            with App.open(self._config) as app:
                assert app.servers is not None
                await app.servers.wait_connected()
                error = app.servers.statuses()[0].error
                if error is None:
                    return await self._calls(app, wanted)
            if not self._may_log_in(error):
                print(error, file=sys.stderr)
                return 1
            await self._log_in()

    async def _calls(self, app: App, wanted: list[dict[str, Any]] | None) -> int:
        tools = {spec.name.partition(".")[2]: spec for spec in app.tools() if spec.source == f"proxy:{SERVER}"}
        results = [await self._call(app, call["name"], call["arguments"]) for call in wanted or _calls_of(tools)]
        for result in results:
            if result.error is not None:
                print(result.error, file=sys.stderr)
        return 0 if all(result.ok for result in results) else 1

    async def _call(self, app: App, tool: str, args: dict[str, Any]) -> ToolResult:
        given = {name: value for name, value in args.items() if value is not None}  # nothing to say: left out
        while True:
            result = await app.call(ToolCall("1", f"{SERVER}.{tool}", given))
            if result.error is None or not self._may_log_in(result.error.message):
                return result
            await self._log_in()

    def _may_log_in(self, said: str) -> bool:
        return "onetool servers login" in said and self._logins < LOGINS

    async def _log_in(self) -> None:
        self._logins += 1
        logins = Documents(SqliteDatabase(self._config.parent / "state.db", makes_folder=True), "logins")
        await login(SERVER, self._block["url"], self._block["auth"], logins, _told, _browse, seconds=30)


def _told(words: str) -> None:
    print(words, file=sys.stderr)


def _browse(page: str) -> None:
    """Open the login page and go wherever it leads: in the end back to us."""

    def go() -> None:
        with urllib.request.urlopen(page, timeout=10) as answer:
            answer.read()

    Thread(target=go, daemon=True).start()


def _calls_of(tools: dict[str, ToolSpec]) -> list[dict[str, Any]]:
    """Every tool once. One scenario has a tool that wants back what was heard of the other: then that one alone."""
    for name, spec in tools.items():
        if "schema" in spec.input_schema.get("properties", {}):
            other = next(other for other in tools.values() if other is not spec)
            return [{"name": name, "arguments": {"schema": other.input_schema}}]
    return [{"name": name, "arguments": _made_up(spec.input_schema)} for name, spec in tools.items()]


def _made_up(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Something for everything that is required."""
    return {name: MADE_UP[schema["properties"][name]["type"]] for name in schema.get("required", ())}


if __name__ == "__main__":
    sys.exit(main())
