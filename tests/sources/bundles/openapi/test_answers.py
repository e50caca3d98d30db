"""Answers of an imported API: its document describes them, and they come as they are."""

import asyncio
import json

import pytest
from helpers import each
from sources.bundles.openapi.documents import answer, imported
from upstream import Reply, Upstream

from onetool.app import App
from onetool.core.call import ToolCall, ToolResult
from onetool.core.spec import FROM_DOCUMENT
from onetool.formats import provider_tools
from onetool.interfaces.mcp.content import from_result, promise_of
from onetool.interfaces.rest.invoke import envelope
from onetool.sources.bundles.names import new_id

PET = {"type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": "string"}}}
PETS = {"type": "array", "items": PET}


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A function that calls a tool with a certain answer, and the app."""
    folder = tmp_path_factory.mktemp("shop")
    with Upstream() as upstream:
        host = upstream.url.removeprefix("http://")
        (folder / "onetool.yaml").write_text(
            f"allowedHosts: [{{host: '{host}', allowPrivate: true}}]\nsecrets: {{SHOP_KEY: s3cret-key-1}}"
        )
        paths = {"/pet": {"get": answer(PET), "delete": answer(PET, code="204")}, "/pets": {"get": answer(PETS)}}
        tools = {slug: tool for slug, _, tool in imported(paths, base_url=upstream.url).tools}
        own = {key: value for key, value in tools["get-pet"]["outputSchema"].items() if key != FROM_DOCUMENT}
        tools["own-pet"] = {**tools["get-pet"], "outputSchema": own}
        with App.open(folder / "onetool.yaml") as app:
            bundle = new_id(1_790_000_000)
            app.bundles.put_bundle(bundle, {"slug": "shop"})
            for slug, tool in tools.items():
                app.bundles.put_tool(bundle, slug, "1", tool)

            def call(slug, data, status=200):
                body = b"" if data is None else json.dumps(data).encode()
                upstream.say(Reply(status, headers={"Content-Type": "application/json"}, body=body))
                return asyncio.run(app.call(ToolCall("1", f"shop.{slug}", {})))

            yield call, app


@each(("tool", "status"), [("delete_pet", 204), ("get_pet", 200), ("list_pets", 200), ("own_pet", 204)])
def test_no_body_is_null_whatever_the_schema(shop, tool, status):
    call, _ = shop
    result = call(tool, None, status)
    assert (result.error, result.data) == (None, None)
    assert "warnings" not in result.meta


@each(
    ("tool", "data", "difference"),
    [
        ("get_pet", [{"id": 1}], "value: expected an object, got a list of 1 item"),
        (
            "list_pets",
            [{"id": "a"}, {"id": "b"}],
            "[0].id: expected a whole number or null, got the string 'a' (and 1 more)",
        ),
        ("list_pets", [{"name": 5, "id": 7}], "[0].name: expected a string or null, got the number 5"),
        ("get_pet", {"id": "s3cret-key-1"}, "id: expected a whole number or null, got the string '***'"),
    ],
)
def test_an_answer_that_differs_from_the_document_comes_with_a_warning(shop, tool, data, difference):
    call, _ = shop
    result = call(tool, data)
    assert json.loads(json.dumps(data).replace("s3cret-key-1", "***")) == result.data
    assert result.meta["warnings"] == [f"shop.{tool} returned a value that differs from its document: {difference}"]
    assert "warnings" not in call("get_pet", {"id": 1, "name": None, "more": True}).meta


def test_a_schema_that_an_author_wrote_is_checked(shop):
    call, _ = shop
    assert call("own_pet", {"id": 1}).data == {"id": 1}
    assert call("own_pet", {"id": "a"}).error.reason == "output_invalid"


def test_no_client_refuses_such_an_answer(shop):
    """MCP clients refuse answers that do not match the listed schema, so none is listed."""
    _, app = shop
    spec, own = (app.catalog.registry.get(f"shop.{name}") for name in ("get_pet", "own_pet"))
    assert [("outputSchema" in tool) for tool in provider_tools([spec, own], "mcp")] == [False, True]
    for data, structured in (({"id": "a"}, {"id": "a"}), ([1], None), (None, None)):
        promise = promise_of(spec, None)
        sent = asyncio.run(from_result(ToolResult(ok=True, data=data), app.runtime, False, str.format, promise))
        assert sent.get("structuredContent") == structured
        assert json.loads(sent["content"][0]["text"]) == data


def test_what_a_tool_returns_is_still_described(shop):
    _, app = shop
    assert app.info("shop.get_pet")["signature"].endswith("-> {id?: int | None, name?: str | None}")


def test_programs_see_the_warning(shop):
    """Over REST and MCP; the command line prints it."""
    call, app = shop
    result = call("get_pet", {"id": "a"})
    assert json.loads(envelope(result)) == {
        "ok": True, "value": {"id": "a"}, "meta": {"warnings": result.meta["warnings"]},
    }  # fmt: skip
    assert json.loads(envelope(call("get_pet", {"id": 1}))) == {"ok": True, "value": {"id": 1}}
    sent = asyncio.run(from_result(result, app.runtime, False, str.format))
    assert sent["_meta"] == {"onetool/warnings": result.meta["warnings"]}
