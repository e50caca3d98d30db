"""Where parameters go, and what becomes of styles that a template can't write."""

from sources.bundles.openapi.documents import HOST, imported, one, parameter, parameters, sent, skipped

STRINGS = {"type": "array", "items": {"type": "string"}}
POINT = {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}}, "required": ["x"]}


def test_path_query_header_and_cookie():
    given = parameters(
        parameter("id", "path", {"type": "integer"}, required=True),
        parameter("limit", schema={"type": "integer"}),
        parameter("X-Request-ID", "header"),
        parameter("lang", "cookie"),
        parameter("Accept", "header"),  # OpenAPI: to be ignored
    )
    tool = one(given, path="/things/{id}")
    assert set(tool["argSchema"]["properties"]) == {"id", "limit", "X_Request_ID", "lang"}
    request = sent(tool, id=3, limit=5, X_Request_ID="a", lang="de")
    assert request.url.target == "/v1/things/3?limit=5"
    assert dict(request.headers) == {"X-Request-ID": "a", "Cookie": "lang=de"}
    assert sent(tool, id=3).headers == []


def test_a_name_that_comes_twice_says_where_it_goes():
    given = parameters(parameter("id", "path", required=True), parameter("id"), parameter("id", "header"))
    request = sent(one(given, path="/things/{id}"), id="p", query_id="q", header_id="h")
    assert (request.url.target, dict(request.headers)) == ("/v1/things/p?id=q", {"id": "h"})


def test_those_of_the_path_are_shared_and_replaced():
    path = {
        "parameters": [parameter("id", "path", required=True), parameter("q")],
        "get": parameters(parameter("q", schema={"type": "integer"})),
    }
    ((_, _, tool),) = imported({"/things/{id}": path}).tools
    assert tool["argSchema"]["properties"]["q"]["type"] == "integer"


def test_lists_repeat_their_name_or_are_one_text():
    tool = one(parameters(parameter("tag", schema=STRINGS)))
    assert sent(tool, tag=["a", "b"]).url.target == "/v1/things?tag=a&tag=b"
    found = imported({"/things/{tag}": {"get": parameters(parameter("tag", "path", STRINGS, required=True))}})
    ((_, _, tool),) = found.tools
    assert tool["argSchema"]["properties"]["tag"] == {
        "type": "string",
        "description": "Several are separated by commas.",
    }
    assert found.notes == [("GET /things/{tag}", "tag is passed as one string, with commas between its values")]


def test_members_of_an_object_in_a_query():
    tool = one(parameters(parameter("at", schema=POINT, style="form", required=True)))
    assert tool["argSchema"]["required"] == ["x"]
    assert sent(tool, x=1, y=2).url.target == "/v1/things?x=1&y=2"


def test_styles_of_a_path():
    label = parameters(parameter("id", "path", required=True, style="label"))
    assert sent(one(label, path="/things{id}"), id="a").url.target == "/v1/things.a"
    matrix = parameters(parameter("id", "path", required=True, style="matrix"))
    assert sent(one(matrix, path="/things/{id}"), id="a").url.target == "/v1/things/;id=a"
    two = parameters(parameter("a", "path", required=True), parameter("b", "path", required=True))
    assert sent(one(two, path="/compare/{a}...{b}"), a="x/y", b="z").url.target == "/v1/compare/x%2Fy...z"


def test_what_has_no_form_is_left_out_or_skips_the_operation():
    given = parameters(parameter("q", "header", POINT), parameter("n"))
    found = imported({"/things": {"get": given}})
    assert set(found.tools[0][2]["argSchema"]["properties"]) == {"n"}
    assert "its optional parameter 'q' is left out" in found.notes[0].why
    why = skipped(parameters(parameter("q", "header", POINT, required=True)))
    assert why == "its parameter 'q': an object can't be sent in the header"


def test_what_a_parameter_lacks_costs_the_parameter_alone():
    length = parameter("Content-Length", "header", {"type": "integer"}, required=True)
    given = parameters(length, {"in": "header", "schema": {}, "required": True}, {"name": "", "in": "query"})
    found = imported({"/things": {"get": {"parameters": [*given["parameters"], parameter("n")]}}})
    assert found.skipped == []
    assert list(found.tools[0][2]["argSchema"]["properties"]) == ["n"]
    assert found.notes == [("GET /things", "a parameter without `name` or `in` is left out")]


def test_too_many_parameters_are_noted():
    found = imported({"/things": {"get": parameters(*(parameter(f"p{n}") for n in range(1_003)))}})
    assert len(found.tools[0][2]["argSchema"]["properties"]) == 1_000
    assert found.notes == [("GET /things", "3 more parameters are left out: an operation is limited to 1,000")]


def test_a_parameter_with_content_is_a_text_of_json():
    given = {"name": "filter", "in": "query", "content": {"application/json": {"schema": POINT}}}
    tool = one(parameters(given))
    assert sent(tool, filter='{"x":1}').url.target == "/v1/things?filter=%7B%22x%22%3A1%7D"


def test_a_path_that_is_not_described():
    found = imported({"/things/{id}": {"get": {}}})
    assert found.tools[0][2]["argSchema"]["required"] == ["id"]
    assert found.notes == [("GET /things/{id}", "{id} of its path is not described; it is treated as a string")]


def test_references_and_examples():
    components = {"parameters": {"Page": parameter("page", schema={"type": "integer"}, example=3, description="Which")}}
    tool = one(parameters({"$ref": "#/components/parameters/Page"}), components=components)
    assert tool["argSchema"]["properties"]["page"] == {"type": "integer", "description": "Which", "examples": [3]}


def test_servers():
    assert one({})["httpImpl"]["request"]["urlTemplate"] == f"{HOST}/things"
    variables = {"region": {"default": "eu"}, "port": {"default": 8443}}
    servers = [{"url": "https://{region}.example.com:{port}/api/", "variables": variables}]
    found = imported({"/x": {"get": {"servers": servers}}})
    assert found.tools[0][2]["httpImpl"]["request"]["urlTemplate"] == "https://eu.example.com:8443/api/x"
    assert found.hosts == ["eu.example.com:8443"]
    relative = [{"url": "/api/v3"}]
    assert "give its URL" in skipped({}, servers=relative)
    found = imported({"/x": {"get": {}}}, servers=relative, document_url="https://a.example/docs/openapi.json")
    assert found.tools[0][2]["httpImpl"]["request"]["urlTemplate"] == "https://a.example/api/v3/x"
    found = imported({"/x": {"get": {}}}, base_url="http://localhost:81/mock")
    assert found.tools[0][2]["httpImpl"]["request"]["urlTemplate"] == "http://localhost:81/mock/x"
    assert found.hosts == ["localhost:81"]
    found = imported({"/x": {"get": {}}}, servers=[], base_url="http://a.example:81/base")
    assert found.tools[0][2]["httpImpl"]["request"]["urlTemplate"] == "http://a.example:81/base/x"
