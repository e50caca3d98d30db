"""Documents that are no documents, or were written by an enemy: refused or skipped with words, in little time."""

from itertools import count, product

import pytest
from helpers import calls
from sources.bundles.openapi.documents import (
    answer,
    body,
    document,
    from_openapi,
    imported,
    one,
    parameter,
    parameters,
    sent,
    skipped,
)

from onetool.core.schema_guard import MAX_COST, guard
from onetool.sources.bundles.errors import InvalidError
from onetool.sources.bundles.openapi import Selection
from onetool.sources.bundles.openapi.document import read_yaml

pytestmark = pytest.mark.long

BILLION = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{','.join([f'*{chr(97 + n)}'] * 10)}]\n" for n in range(9)
)


@pytest.fixture(autouse=True)
def soon():
    with calls(5_000_000):
        yield


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("swagger: '2.0'\npaths: {}", "Swagger 2.0"),
        ('{"openapi": "3.2.0", "paths": {}}', "only 3.0 and 3.1"),
        ('{"openapi": "3.1.0"}', "paths: expected an object"),
        ('{"info": {}}', "no key `openapi`"),
        ("[]", "expected an object"),
        ("", "expected an object"),
        ('{"openapi": ', "not JSON"),
        ("a: [", "line 1: "),
        ("a: b: c", "line 1"),
        (b"\xff\xfe", "not UTF-8"),
        (BILLION, "aliases repeat"),
        ("a: &a [*a]", "an anchor that does not exist"),
        ("[" * 100_000, "levels deep"),
        ('{"a":' * 100_000, "nested too deep"),
        ("a: 1\n---\nb: 2", "a second document"),
        ("? [a]\n: b", "a key must be a string"),
        ("{" + "[]," * 2_000_000, "more than"),
        (b" " * (33 * 1024**2), "larger than"),
    ],
)
def test_what_is_no_document(text, words):
    with pytest.raises(InvalidError, match=words):
        from_openapi(text)


def test_yaml_is_read_as_openapi_says():
    text = "on: no\n200: 1\nd: 2026-11-15\nn: ~\nf: 1.5e3\nz: 007\nq: '1'\nversion: 1.10\n"
    text += "base: &b {a: 1, b: 2}\nm: {<<: *b, b: 3}"
    assert read_yaml(text) == {
        "on": "no", "200": 1, "d": "2026-11-15", "n": None, "f": 1500.0, "z": "007", "q": "1", "version": "1.10",
        "base": {"a": 1, "b": 2}, "m": {"a": 1, "b": 3},
    }  # fmt: skip


@pytest.mark.parametrize(
    "ref", ["https://evil.example/x.json", "file:///etc/passwd", "other.yaml#/a", "#/nowhere", "#anchor"]
)
def test_references_are_never_followed_outside(ref):
    found = imported({"/x": {"post": body({"type": "object", "properties": {"a": {"$ref": ref}}})}})
    assert found.tools[0][2]["argSchema"]["properties"]["a"] == {}
    assert ref in found.notes[0].why
    assert ref in skipped({"requestBody": {"$ref": ref}}, "post")
    assert imported({"/x": {"$ref": ref}}).skipped[0].operation == "/x"


def test_references_in_circles():
    loop = {"schemas": {"A": {"$ref": "#/components/schemas/B"}, "B": {"$ref": "#/components/schemas/A"}}}
    bodies = {"requestBodies": {"R": {"$ref": "#/components/requestBodies/R"}}}
    why = skipped({"requestBody": {"$ref": "#/components/requestBodies/R"}}, "post", components=bodies)
    assert "circular" in why
    found = imported(
        {"/x": {"post": body({"type": "array", "items": {"$ref": "#/components/schemas/A"}})}}, components=loop
    )
    assert found.tools[0][2]["argSchema"]["properties"]["body"]["type"] == "array"
    all_of = {"schemas": {"A": {"allOf": [{"$ref": "#/components/schemas/A"}]}}}
    imported({"/x": {"post": body({"$ref": "#/components/schemas/A"})}}, components=all_of)


def test_results_that_multiply():
    def following(n):
        return {"anyOf": [schema(f"S{n}"), {"type": "string"}]}

    schemas = {f"S{n}": {"properties": {"a": following(n + 1), "b": following(n + 1)}} for n in range(2_000)}
    schemas |= {f"T{n}": {"allOf": [schema(f"T{n + 1}"), {"properties": {f"p{n}": {}}}]} for n in range(2_000)}
    tool = one(answer({"properties": {"s": schema("S0"), "t": schema("T0")}}), components={"schemas": schemas})
    assert len(str(tool["outputSchema"])) < 20_000


def test_a_long_chain_and_a_wide_graph():
    chain = {
        f"S{n}": {"type": "object", "properties": {"x": {"$ref": f"#/components/schemas/S{n + 1}"}}}
        for n in range(3000)
    }
    chain["S3000"] = {"type": "string"}
    found = imported({"/x": {"post": body({"$ref": "#/components/schemas/S0"})}}, components={"schemas": chain})
    assert len(str(found.tools[0][2])) < 100_000
    names = [f"S{n}" for n in range(60)]
    everything = {name: {"$ref": f"#/components/schemas/{name}"} for name in names}
    mesh = {name: {"type": "object", "properties": everything} for name in names}
    paths = {f"/x{n}": {"post": body({"type": "object", "properties": everything})} for n in range(20)}
    found = imported(paths, components={"schemas": mesh})
    assert len(found.tools) == 20


def test_alternatives_that_multiply():
    schemas = {f"S{n}": {"anyOf": [{"$ref": f"#/components/schemas/S{n + 1}"}] * 2} for n in range(30)}
    schemas["S30"] = {"type": "string"}
    given = body({"type": "object", "properties": {"a": {"$ref": "#/components/schemas/S0"}}})
    found = imported({"/x": {"post": given}}, components={"schemas": schemas})
    assert guard(found.tools[0][2]["argSchema"]).costs[0] <= MAX_COST


def test_deep_schemas():
    deep = {"type": "string"}
    for _ in range(300):
        deep = {"type": "object", "properties": {"x": deep}}
    tool = one(body({"type": "object", "properties": {"a": deep}}), "post")
    assert len(str(tool["argSchema"])) < 10_000


@pytest.mark.parametrize("path", ["things", "#/a", "@evil.example/", "/a b", "/a\\b", "/a\nb", "/{", "/a\x7f"])
def test_paths_that_are_none(path):
    assert "isn't a path" in skipped({}, path=path)


@pytest.mark.parametrize(
    "path",
    [
        "/..", "/../evil", "/api/..//evil", "/a//b", "//evil", "/a/./b", "/%2E%2e/x", "/..;a/x", "/..%2Fevil",
        "/..%5Cevil", "/{id}/../x", "/{id?}/../x", "/../x#part",
    ],
)  # fmt: skip
def test_paths_that_leave_the_server(path):
    assert "isn't a path" in skipped({}, path=path)


@pytest.mark.parametrize("path", ["/", "/a/", "/...", "/a..b", "/.well-known/x", "/a?x=/../y", "/a#/../b"])
def test_paths_with_dots(path):
    assert sent(one({}, path=path)).url.target == f"/v1{path.partition('#')[0]}"


def test_a_path_names_no_secret():
    tool = one({}, path="/${GITHUB_TOKEN}/$${GITHUB_TOKEN}")
    request = sent(tool, secret=lambda name: pytest.fail(name), GITHUB_TOKEN="mine")
    assert request.url.target == "/v1/%24mine/$%24mine"


@pytest.mark.parametrize(
    "url",
    [
        "https://api.example.com@evil.example", "https://a b", "ftp://x.example", "//evil.example", "javascript:a(1)",
        "https://${GITHUB_TOKEN}.evil.example", "https://api.example.com?x=", "https://0x7f.1", "https://x\\.example",
        "https://{host}",
    ],
)  # fmt: skip
def test_servers_that_are_none(url):
    assert "its server" in skipped({}, servers=[{"url": url}], document_url="https://api.example.com")


def test_a_variable_cant_move_the_host():
    servers = [{"url": "https://api.example.com{base}", "variables": {"base": {"default": "@evil.example/x"}}}]
    assert "its server" in skipped({}, servers=servers)
    servers = [{"url": "https://{h}", "variables": {"h": {"default": "${AWS_SECRET}.evil.example"}}}]
    assert "its server" in skipped({}, servers=servers)


def test_variables_that_multiply():
    filled = {"url": "https://api.example.com/" + "{a}" * 2_000, "variables": {"a": {"default": "b" * 2_000}}}
    for servers in ([filled], [{"url": "https://api.example.com/" + "b" * 65_536}]):
        assert "a URL of more than 65,536 characters" in skipped({}, servers=servers)
    near = {"url": "https://api.example.com/" + "{a}" * 100, "variables": {"a": {"default": "b" * 600}}}
    assert len(one({}, servers=[near])["httpImpl"]["request"]["urlTemplate"]) > 60_000


def test_a_document_cant_ask_for_a_secret():
    """Whatever it calls things: only the bundle's own secrets are placeholders."""
    name = "${AWS_SECRET_ACCESS_KEY}"
    given = {
        **parameters(
            parameter(name), parameter(name, "header"), parameter("n", schema={"type": "string", "default": name})
        ),
        **body({"type": "object", "properties": {name: {"type": "string", "default": name}}}),
        "security": [{"k": []}],
        "summary": name,
    }
    components = {"securitySchemes": {"k": {"type": "apiKey", "name": name, "in": "query"}}}
    found = imported({"/x": {"post": given}}, components=components)
    assert found.secrets == ["SHOP_API_KEY"]
    asked = []
    sent(
        found.tools[0][2],
        lambda one: asked.append(one) or "v",
        AWS_SECRET_ACCESS_KEY="q",
        body_AWS_SECRET_ACCESS_KEY="b",
    )
    assert set(asked) <= {"SHOP_API_KEY"}
    key = {"securitySchemes": {"k": {"type": "apiKey", "name": name, "in": "header"}}}
    assert imported({"/x": {"get": {"security": [{"k": []}]}}}, components=key).secrets == []


def test_names_with_what_cant_be_seen():
    given = {"operationId": "a\x00b\u202e", "summary": "x\x1b[31my\n", "description": "\x07" * 10_000, "tags": ["\x00"]}
    found = imported({"/x": {"get": given}}, info={"title": "\x00\u202e\n", "version": "\x00"})
    ((slug, version, tool),) = found.tools
    assert (slug, version) == ("a-b", "1")
    assert found.bundle["slug"] == "example"
    assert (tool["displayName"] + tool["description"] + "".join(tool["tags"])).isprintable()


@pytest.mark.parametrize("junk", [None, 3, "x", [], [[]], {"a": 1}, True])
def test_junk_in_every_place(junk):
    operation = {
        "parameters": junk, "requestBody": junk, "responses": junk, "security": junk, "tags": junk, "operationId": junk,
        "summary": junk, "description": junk, "servers": junk, "deprecated": junk,
    }  # fmt: skip
    for key in [*operation, None]:
        given = {key: junk} if key else operation
        found = imported({"/x": {"get": given}, "/y": junk}, components=junk, info=junk, security=junk)
        assert len(found.tools) + len(found.skipped) >= 1
    schema = dict.fromkeys(
        ("type", "properties", "items", "required", "enum", "allOf", "anyOf", "not", "pattern"), junk
    )
    imported(
        {"/x": {"post": {**body(schema), "responses": {"200": {"content": {"application/json": {"schema": schema}}}}}}}
    )
    imported({"/x": {"post": body({"type": "object", "properties": {"a": schema}})}})
    imported({"/x": {"get": parameters({"name": "a", "in": "query", "schema": junk, "style": junk, "explode": junk})}})
    schemes = {"s": {"type": "oauth2", "flows": junk}, "t": {"type": "http", "scheme": junk}, "u": junk}
    imported(
        {"/x": {"get": {"security": [{"s": junk}, {"t": []}, {"u": []}]}}}, components={"securitySchemes": schemes}
    )


def test_more_operations_than_anybody_has(monkeypatch):
    monkeypatch.setattr("onetool.sources.bundles.openapi.MAX_OPERATIONS", 500)
    paths = {f"/x/{{p{n}}}/x": {"get": {"operationId": "same"}} for n in range(600)}
    found = from_openapi(document(paths))
    assert len(found.tools) == 500
    assert ["100 more operations" in why for _, why in found.skipped] == [True]
    assert len({slug for slug, _, _ in found.tools}) == 500
    monkeypatch.setattr("onetool.sources.bundles.openapi.MAX_NAMED", 599)
    with pytest.raises(InvalidError, match="more than 599 operations"):
        from_openapi(document(paths))


# Little documents that once took minutes. `soon` counts the calls.


def schema(name):
    return {"$ref": f"#/components/schemas/{name}"}


def test_many_references_to_a_large_part():
    members = {f"p{n}": {"$ref": "#/components"} for n in range(3_000)}
    components = {"type": "string", "schemas": {f"s{n}": {} for n in range(3_000)}}
    tool = one(body({"type": "object", "properties": members}), "post", components=components)
    assert tool["argSchema"]["required"] == ["body"]


def test_many_ways_to_write_one_reference():
    name = "abcdefghij"
    written = ["".join(f"%{ord(c):x}" if n >> k & 1 else c for k, c in enumerate(name)) for n in range(1_000)]
    large = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(1_000)}}
    given = body({"type": "array", "items": {"anyOf": [schema(one) for one in written]}})
    one(given, "post", components={"schemas": {name: large}})


def test_members_of_parts_of_parts():
    schemas = {f"S{n}": {"allOf": [schema(f"S{n + 1}")] * 7} for n in range(7)}
    schemas["S7"] = {"type": "object", "properties": {"a": {"type": "string"}}}
    tool = one(body(schema("S0")), "post", components={"schemas": schemas})
    assert list(tool["argSchema"]["properties"]) == ["a"]


def test_many_security_schemes():
    schemes = {f"s{n}": {"type": "http", "scheme": "bearer"} for n in range(3_000)}
    found = imported(
        {f"/x{n}": {"get": {}} for n in range(300)},
        security=[{f"t{n}": []} for n in range(3_000)],
        components={"securitySchemes": schemes},
    )
    assert len(found.notes[0].why) < 2_000


def test_many_operations_with_one_name():
    ids = ("a" * 57 + f"z{n // 2}" for n in count())
    paths = {f"/{''.join(signs)}": {"get": {"operationId": next(ids)}} for signs in product("!*'(),;:@&", repeat=4)}
    found = from_openapi(document(paths), selection=Selection(operation=("get /!!!!",)))
    assert len(found.tools) == 1


def test_a_long_path():
    why = skipped({}, path="/" + "/".join(f"a{n}" for n in range(2_000)))
    assert "longer than 2,000 characters" in why


def test_a_list_of_itself_in_a_form():
    given = body({"type": "object", "properties": {"a": schema("A")}}, "multipart/form-data")
    one(given, "post", components={"schemas": {"A": {"type": "array", "items": schema("A")}}})


def test_many_arguments_of_one_name():
    members = {"a" + "-" * n: {"type": "string"} for n in range(1, 200)}
    given = parameters(*(parameter(f"q{n}", schema={"type": "object", "properties": members}) for n in range(5)))
    found = imported({"/x": {"get": given}})
    assert "more than 500 arguments" in found.notes[0].why


def test_the_time_limit_holds_inside_of_an_operation(monkeypatch):
    clock = count()
    monkeypatch.setattr("onetool.sources.bundles.openapi.document.thread_time", lambda: next(clock))
    members = {f"p{n}": schema("A") for n in range(100)}
    given = body({"type": "object", "properties": members})
    with pytest.raises(InvalidError, match="more than 60 s to read: import a part of it"):
        imported({"/x": {"post": given}}, components={"schemas": {"A": {}}})


def test_many_patterns():
    data = document({f"/x{n}": {"get": {"tags": ["t"] * 100}} for n in range(1_000)})
    with pytest.raises(InvalidError, match="No operation matches '/y0'"):
        from_openapi(data, selection=Selection(only=("*", *(f"/y{n}" for n in range(99)))))
    with pytest.raises(InvalidError, match="at most 100 patterns"):
        from_openapi(data, selection=Selection(only=("*",) * 101))
    with pytest.raises(InvalidError, match="No operation has the tag 'u0'"):
        from_openapi(data, selection=Selection(tag=tuple(f"u{n}" for n in range(3_000))))
    with pytest.raises(InvalidError, match="No operation is called 'o0'"):
        from_openapi(data, selection=Selection(operation=tuple(f"o{n}" for n in range(3_000))))
