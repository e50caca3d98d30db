"""What the API says of itself is so."""

import ast
import re
from pathlib import Path

import jsonschema_rs
import msgspec
import pytest
from interfaces.rest.served import BUILT_IN, problem

from onetool.interfaces import rest
from onetool.interfaces.rest import ASK_PATH as ASK
from onetool.interfaces.rest import ROOTS, openapi_schemas
from onetool.interfaces.rest.ask_app import ASK_ROUTES
from onetool.interfaces.rest.ask_body import PROVIDER_STATUS, STATUS_OF_REASON
from onetool.interfaces.rest.openapi import CALL
from onetool.interfaces.rest.openapi_insight import OUTSIDE
from onetool.interfaces.rest.problem import STATUS_OF_ERROR
from onetool.interfaces.rest.routing import ROUTES
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


def references(part):
    if isinstance(part, dict):
        yield from [part["$ref"]] if "$ref" in part else []
        for one in part.values():
            yield from references(one)
    elif isinstance(part, list):
        for one in part:
            yield from references(one)


def test_every_route_and_method_is_described_and_no_other(document):
    routes = (*ROUTES, *ASK_ROUTES.routes)
    served = {(place.path, method.lower()) for place in routes for method in place.methods}
    served |= {(CALL, "post")}
    served |= {(path, method.lower()) for path, method in OUTSIDE}
    told = {(path, method) for path, item in document["paths"].items() for method in item if method != "parameters"}
    assert served == told
    assert document["openapi"] == "3.1.0"


def test_every_parameter_is_described(document):
    for place in (*ROUTES, *ASK_ROUTES.routes):
        item = document["paths"][place.path]
        assert [one["name"] for one in item["parameters"]] == re.findall(r"{(\w+)}", place.template)
        for method, way in place.methods.items():
            told = [one["name"] for one in item[method.lower()]["parameters"] if one["in"] == "query"]
            assert told == list(way.parameters)


def test_every_reference_leads_somewhere_and_every_schema_is_one(document):
    schemas = document["components"]["schemas"]
    for reference in references(document):
        assert reference.removeprefix("#/components/schemas/") in schemas
    meta = jsonschema_rs.Draft202012Validator({"$ref": DIALECT}, offline=True)
    for name, schema in schemas.items():
        assert meta.is_valid(schema), name


def test_every_route_says_which_refusals_it_knows(document):
    always = {"400", "401", "403", "405", "413", "415", "421", "500", "503"}
    for path, item in document["paths"].items():
        for method, one in item.items():
            if method == "parameters":
                continue
            told = set(one["responses"])
            assert always <= told
            assert ("404" in told) == (("{" in path and one["operationId"] != "putBundle") or path in CAN_MISS)
            for status, response in one["responses"].items():
                kinds = list(response.get("content", {}))
                if status >= "400":
                    assert kinds == ["application/problem+json"]


def raised_statuses():
    """The numbers in `RestError(…)` and `HttpError(…)` of all that a request to a route goes through."""
    folder = Path(rest.__file__).parent
    files = [*folder.glob("*.py"), folder.parent / "asgi.py", folder.parent / "http" / "rules.py"]
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
    _, encoded = msgspec.json.schema_components(openapi_schemas._SHAPES, ref_template="{name}")
    added = {"BundleContent": KEPT - {"bundleID"}, "Tool": SHOWN}
    dropped = {"Bundle": {"schemaVersion"}, "ToolCall": {"timeout"}}
    for struct, schema in encoded.items():
        name = openapi_schemas._component_name(struct)
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
    assert checker(document, "Question").is_valid(openapi_schemas.EXAMPLE_QUESTION)


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
        assert not question.is_valid({**openapi_schemas.EXAMPLE_QUESTION, **change}), change
    assert question.is_valid({**openapi_schemas.EXAMPLE_QUESTION, "files": [{"name": "a", "text": ""}]})


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
    bundle = f"/tools/bundles/{openapi_schemas.EXAMPLE_BUNDLE_ID}"
    tool = f"{bundle}/tools/{openapi_schemas.EXAMPLE_TOOL_SLUG}/version/{openapi_schemas.EXAMPLE_TOOL_VERSION}"
    assert checker(document, "BundleContent").is_valid(openapi_schemas.EXAMPLE_BUNDLE)
    assert checker(document, "ToolContent").is_valid(openapi_schemas.EXAMPLE_TOOL)
    assert api.ask("PUT", bundle, openapi_schemas.EXAMPLE_BUNDLE).status_code == 201
    assert api.ask("PUT", tool, openapi_schemas.EXAMPLE_TOOL).status_code == 201
    assert api.ask("PATCH", tool, openapi_schemas.EXAMPLE_SWITCH).status_code == 200
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
        assert not content.is_valid({**openapi_schemas.EXAMPLE_TOOL, **change}), change


def test_the_built_in_id_is_one(api):
    assert api.get(f"/tools/bundles/{BUILT_IN}").status_code == 200


def test_the_addresses_are_those_of_the_routes():
    assert list(dict.fromkeys(f"/{route.segments[0]}" for route in ROUTES)) == list(ROOTS)
