"""What the API says of itself is so."""

import ast
import asyncio
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated

import httpx
import jsonschema_rs
import msgspec
import pytest
from interfaces.rest.served import BUILT_IN, problem, with_head

from onetool.http import asgi
from onetool.interfaces import rest
from onetool.interfaces.rest import ASK_PATH as ASK
from onetool.interfaces.rest import ROOTS
from onetool.interfaces.rest.app import RestApp
from onetool.interfaces.rest.ask_body import PROVIDER_STATUS, STATUS_OF_REASON
from onetool.interfaces.rest.insight import UsageQuery
from onetool.interfaces.rest.openapi import TABLES, describe_routes
from onetool.interfaces.rest.openapi_schemas import NAMED, PUBLIC_NAMES
from onetool.interfaces.rest.problem import STATUS_OF_ERROR
from onetool.interfaces.rest.query import query_fields
from onetool.interfaces.rest.request import RestResponse
from onetool.interfaces.rest.route import BUNDLE, TOOL, RestRoute
from onetool.interfaces.rest.routing import API_ROUTES, RouteTable
from onetool.sources.bundles.validation import KEPT, SHOWN

CAN_MISS = (ASK, f"{ASK}/calls")  # their bodies name something that may not be there
DIALECT = "https://json-schema.org/draft/2020-12/schema"


@pytest.fixture(scope="module")
def document(api):
    reply = api.get("/openapi.json")
    assert (reply.status_code, reply.headers["content-type"]) == (200, "application/json")
    return reply.json()


def checker(document, name):
    schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
    return jsonschema_rs.Draft202012Validator(schema, offline=True)


def example(document, path, method):
    return document["paths"][path][method]["requestBody"]["content"]["application/json"]["example"]


def references(part):
    if isinstance(part, dict):
        yield from [part["$ref"]] if "$ref" in part else []
        for one in part.values():
            yield from references(one)
    elif isinstance(part, list):
        for one in part:
            yield from references(one)


class Greeting(msgspec.Struct):
    """A greeting."""

    text: Annotated[str, msgspec.Meta(description="What to say.")]


def test_a_route_is_declared_at_its_handler_and_nowhere_else():
    @RestRoute(
        "GET", "/tools/greetings/{handle}", "Greetings", role="edit", query=UsageQuery, gives=Greeting, errors=(404,)
    )
    async def get_greeting(request):
        """Get a greeting.

        A friendly one.
        """
        return RestResponse(200, msgspec.json.encode(Greeting(f"{request.path[0]} {request.query.days}")))

    @RestRoute("GET", "/tools/greetings/best", "Greetings")
    async def get_best_greeting(request):
        """Get the best greeting."""
        return RestResponse(204)

    class GreetingApp(RestApp):
        routes = RouteTable([get_greeting, get_best_greeting])

    async def ask():
        transport = httpx.ASGITransport(with_head(GreetingApp(app)))
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            return await client.get("/tools/greetings/hello?days=3")

    app = SimpleNamespace(audit=SimpleNamespace(), runtime=SimpleNamespace(), catalog=SimpleNamespace(registry=None))
    assert asyncio.run(ask()).json() == {"text": "hello 3"}
    assert GreetingApp.routes.match(b"/tools/greetings/best", "GET").route is get_best_greeting
    tags, paths, schemas = describe_routes((*TABLES, GreetingApp.routes))
    told = paths["/tools/greetings/{handle}"]
    assert ("Greetings" in tags, [one["name"] for one in told["parameters"]]) == (True, ["handle"])
    operation = told["get"]
    assert (operation["operationId"], operation["summary"]) == ("getGreeting", "Get a greeting")
    assert operation["description"] == "A friendly one. Needs the role edit."
    assert [one["name"] for one in operation["parameters"]] == ["days"]
    assert operation["responses"]["200"]["content"]["application/json"]["schema"]["$ref"].endswith("/Greeting")
    assert {"400", "401", "403", "404", "503"} <= set(operation["responses"])
    assert schemas["Greeting"]["properties"]["text"] == {"type": "string", "description": "What to say."}


def test_every_operation_is_described(document):
    operations = [one for item in document["paths"].values() for key, one in item.items() if key != "parameters"]
    assert document["openapi"] == "3.1.0"
    assert len({one["operationId"] for one in operations}) == len(operations)
    assert all(re.fullmatch(r"[A-Z][^\n]+[^.]", one["summary"]) for one in operations)
    assert {name for one in operations for name in one["tags"]} == {tag["name"] for tag in document["tags"]}


def test_every_parameter_is_described(document):
    for place in (place for table in TABLES for place in table.resources):
        item = document["paths"][place.path]
        assert [one["name"] for one in item["parameters"]] == re.findall(r"{(\w+)}", place.path)
        for method, route in place.methods.items():
            told = [one["name"] for one in item[method.lower()]["parameters"] if one["in"] == "query"]
            assert told == list(query_fields(route.query) if route.query else ())


def test_every_reference_leads_somewhere_and_every_schema_is_one(document):
    schemas = document["components"]["schemas"]
    for reference in references(document):
        assert reference.removeprefix("#/components/schemas/") in schemas
    meta = jsonschema_rs.Draft202012Validator({"$ref": DIALECT}, offline=True)
    for name, schema in schemas.items():
        assert meta.is_valid(schema), name


MAKES = ("putBundle", "allowHostForTools", "setSecret")  # what is not there


def test_every_route_says_which_refusals_it_knows(document):
    always = {"400", "401", "403", "405", "413", "415", "421", "500", "503"}
    for path, item in document["paths"].items():
        for method, one in item.items():
            if method == "parameters":
                continue
            told = set(one["responses"])
            assert always <= told
            assert ("404" in told) == (("{" in path and one["operationId"] not in MAKES) or path in CAN_MISS)
            for status, response in one["responses"].items():
                kinds = list(response.get("content", {}))
                if status >= "400":
                    assert kinds == ["application/problem+json"]


def raised_statuses():
    """The numbers in `RestError(…)` and `HttpError(…)` of all that a request to a route goes through."""
    folder = Path(rest.__file__).parent
    files = [*folder.glob("*.py"), Path(asgi.__file__), folder.parent / "http" / "rules.py"]
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("RestError", "HttpError"):
                inside = [one for argument in node.args[:1] for one in ast.walk(argument)]
                yield from (one.value for one in inside if isinstance(one, ast.Constant) and type(one.value) is int)


def test_every_status_that_handlers_raise_is_described(document):
    raised = {*raised_statuses(), *STATUS_OF_ERROR.values(), *STATUS_OF_REASON.values(), PROVIDER_STATUS}
    told = {
        int(status)
        for item in document["paths"].values()
        for method, one in item.items()
        if method != "parameters"
        for status in one["responses"]
    }
    assert {400, 403, 404, 405, 415, 421, 429, 503} <= raised
    assert raised <= told
    every = {*raised, 200, 201, 204, 304, 500}  # 401 and 413 are of what stands before it: interfaces/http
    assert told - every <= {401, 413}


def test_every_component_has_the_properties_of_what_is_encoded(document):
    """Only what the store alone knows, or what a switch over kinds splits up, differs."""
    schemas = document["components"]["schemas"]
    routes = [route for table in TABLES for place in table.resources for route in place.methods.values()]
    shapes = {shape for one in routes for shape in (one.takes, one.gives, one.problem)} - {None}
    types = [*NAMED, *(shape for shape in shapes if not isinstance(shape, str))]
    _, encoded = msgspec.json.schema_components(types, ref_template="{name}")
    added = {"BundleContent": KEPT - {"bundleID"} | {"warnings"}, "Bundle": {"warnings"}, "Tool": SHOWN}
    dropped = {"Bundle": {"schemaVersion"}, "ToolCall": {"timeout", "version", "called_via"}}
    for struct, schema in encoded.items():
        name = PUBLIC_NAMES.get(struct, struct)
        alternatives = schemas[name].get("oneOf") or [schemas[name]]
        shapes = [schemas[one["$ref"].rpartition("/")[2]] if "$ref" in one else one for one in alternatives]
        told = {key for one in shapes for key in one.get("properties", ())}
        if name == "ToolContent":
            told -= {*KEPT, *SHOWN, "slug", "version"}
        assert told == ({*schema.get("properties", ())} | added.get(name, set())) - dropped.get(name, set()), name


def test_every_reason_why_a_model_gives_no_answer_has_its_status_there(document):
    told = document["paths"][ASK]["post"]["responses"]
    for status in {*STATUS_OF_REASON.values(), PROVIDER_STATUS}:
        schema = told[str(status)]["content"]["application/problem+json"]["schema"]
        assert schema == {"$ref": "#/components/schemas/AskProblem"}
    assert list(told["200"]["content"]) == ["application/json", "text/event-stream"]
    assert checker(document, "Question").is_valid(example(document, ASK, "post"))


def test_a_question_that_is_wrong_is_wrong_by_its_schema_too(document):
    question = checker(document, "Question")
    for change in (
        {"prompt": " "},
        {"session": "../x"},
        {"baseUrl": "http://evil.example"},
        {"temperature": 3},
        {"maxSteps": 0},
        {"approve": "perhaps"},
        {"files": [{"name": "a"}]},
        {"files": [{"name": "a", "text": "a", "data": "aaaa", "kind": "image/png"}]},
        {"files": [{"name": "a", "data": "aaaa"}]},
        {"files": [{"name": "a", "data": "a", "kind": "image/png"}]},
    ):
        assert not question.is_valid({**example(document, ASK, "post"), **change}), change
    assert question.is_valid({**example(document, ASK, "post"), "files": [{"name": "a", "text": ""}]})


def test_a_key_is_described_by_the_shape_that_it_stands_in(document):
    schemas = document["components"]["schemas"]
    told = {name: schemas[name]["properties"]["code"]["description"] for name in ("ScriptImpl", "Problem", "ToolError")}
    assert "language of `run`" in told["ScriptImpl"]
    assert len(set(told.values())) == 3
    assert not any("`run`" in told[name] for name in ("Problem", "ToolError"))
    assert "`in`" not in schemas["WrongArgument"]["properties"]["pointer"]["description"]  # which it has not


def test_it_can_be_taken_in_as_tools_by_ourselves(document):
    from onetool.sources.bundles.openapi import OpenApiImport

    found = OpenApiImport(msgspec.json.encode(document), base_url="https://tools.example").convert({})
    operations = [one for item in document["paths"].values() for one in item if one != "parameters"]
    assert len(found.tools) == len(operations) >= 35
    assert (found.skipped, found.notes) == ([], [])


def test_its_examples_work(api, document):
    names = {one["name"]: one["example"] for one in document["paths"][TOOL]["parameters"]}
    bundle, tool = BUNDLE.format(**names), TOOL.format(**names)
    assert checker(document, "BundleContent").is_valid(example(document, BUNDLE, "put"))
    assert checker(document, "ToolContent").is_valid(example(document, TOOL, "put"))
    assert api.ask("PUT", bundle, example(document, BUNDLE, "put")).status_code == 201
    assert api.ask("PUT", tool, example(document, TOOL, "put")).status_code == 201
    assert api.ask("PATCH", tool, example(document, TOOL, "patch")).status_code == 200
    shown = api.get(tool).json()
    assert checker(document, "Tool").is_valid(shown)
    assert checker(document, "ToolContent").is_valid(shown)  # what was got may be put elsewhere
    assert checker(document, "Bundle").is_valid(api.get(bundle).json())
    assert checker(document, "BundleContent").is_valid(api.get(bundle).json())


def test_what_is_given_is_as_described(api, document):
    for path, name in (("/tools/bundles", "BundlePage"), ("/tools/tools", "ToolPage")):
        checker(document, name).validate(api.get(path).json())
    envelope = checker(document, "Envelope")
    for slug in ("echo", "odd", "broken"):
        envelope.validate(api.call(slug).json())
    told = checker(document, "Problem")
    told.validate(problem(api.call("large", {}), 400, "invalid_args"))
    told.validate(problem(api.get("/tools/x"), 404, "not_found"))


def test_what_is_wrong_is_wrong_by_its_schema_too(document):
    content = checker(document, "ToolContent")
    for change in (
        {"type": "ftp"},
        {"type": "python"},
        {"httpImpl": None},
        {"pythonImpl": {"func": "x"}},
        {"tags": [""]},
        {"limits": {"maxRetries": 11}},
        {"unknown": 1},
        {"httpImpl": {"request": {"urlTemplate": "ftp://example.com"}}},
    ):
        assert not content.is_valid({**example(document, TOOL, "put"), **change}), change


def test_the_built_in_id_is_one(api):
    assert api.get(f"/tools/bundles/{BUILT_IN}").status_code == 200


def test_the_addresses_are_those_of_the_routes():
    assert {f"/{place.segments[0]}" for place in API_ROUTES.resources} == set(ROOTS)
