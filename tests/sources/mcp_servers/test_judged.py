"""For a single call the server is the judge of its arguments; code is checked before it runs."""

import asyncio
import json

import httpx
import pytest
from sources.mcp_servers.harness import call, ran

import onetool

NOTE = {"title": "t", "content": "c", "folder": "f"}
ACCEPTED = [
    ("write_note", NOTE, NOTE, ["folder: odd.write_note does not list this argument; it was sent on to the server"]),
    ("tavily_extract", {"urls": "https://a.b"}, {"urls": ["https://a.b"]}, None),
    ("tavily_map", {}, {}, None),
    ("chart", {"data": [{"category": "a"}]}, {"data": [{"category": "a"}]}, None),
]
TOKEN = "sesame-token-0123456789"


@pytest.fixture
def servers(harness):
    return {"odd": harness.nasty("judges")}


@pytest.fixture
def app(harness, servers):
    with harness.app(servers, http={"token": TOKEN}) as app:
        yield app


def over_rest(app, tool, args):
    """Call it as a tool of the read-only bundle, and by its name, where the body is the arguments."""

    async def post():
        transport = httpx.ASGITransport(onetool.asgi(app))
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
            bundles = (await client.get("/tools/bundles", params={"pageSize": 100})).json()["bundles"]
            id = next(one["id"] for one in bundles if one["slug"] == "odd")
            path = f"/tools/bundles/{id}/tools/{tool.replace('_', '-')}/version/1/invoke"
            return await client.post(path, json={"args": args}), await client.post(f"/call/odd.{tool}", json=args)

    return asyncio.run(post())


@pytest.mark.parametrize(("tool", "args", "got", "warnings"), ACCEPTED)
def test_what_the_server_takes_is_sent(app, tool, args, got, warnings):
    assert call(app, f"odd.{tool}", **args).data == got
    in_bundle, by_name = over_rest(app, tool, args)
    meta = {"meta": {"warnings": warnings}} if warnings else {}
    assert (in_bundle.status_code, in_bundle.json()) == (200, {"ok": True, "value": got, **meta})
    assert (by_name.status_code, by_name.json()) == (200, got)


def test_the_command_line_sends_it_too(harness, servers):
    harness.config(servers)
    for tool, args, got, _ in ACCEPTED[:2]:
        pairs = [f"{name}={value}" for name, value in args.items()]
        for given in (pairs, ["--args", json.dumps(args)]):
            done = harness.cli("tools", "invoke", f"odd.{tool}", *given, "--json")
            assert json.loads(done.stdout)["result"]["data"] == got, done.stderr
    done = harness.cli("tools", "invoke", "odd.counts", "count=three", "--json")
    assert json.loads(done.stdout)["result"]["error"]["code"] == "execution_error"


@pytest.mark.parametrize(
    ("args", "finding"),
    [
        ({"cuont": 3}, "cuont: unknown argument (did you mean count?)"),
        ({"count": "three"}, "count: expected a whole number, got the string 'three'"),
        ({"count": 3, "colour": "red"}, "colour: unknown argument"),
        ({}, "count: expected a value (required), got nothing"),
    ],
)
def test_a_refusal_is_the_servers_own_and_our_finding_stands_behind_it(app, args, finding):
    error = call(app, "odd.counts", **args).error
    assert (error.code, error.message) == ("execution_error", f"Error: bad arguments\n{json.dumps(args)}")
    message, signature = error.hints
    assert message.startswith("Invalid arguments for odd.counts: ")
    assert finding in message
    assert signature.startswith("odd.counts(")
    in_bundle, by_name = over_rest(app, "counts", args)
    told = in_bundle.json()
    assert (in_bundle.status_code, told["ok"], told["error"]["code"]) == (200, False, "execution_error")
    assert told["error"]["hints"] == by_name.json()["hints"] == [message, signature]


def test_arguments_that_fit_the_schema_get_no_finding(app):
    assert call(app, "odd.fails").error.hints == ()
    assert call(app, "odd.counts", count="3").data == "3"


def test_a_near_miss_that_the_server_takes_is_told(app):
    result = call(app, "odd.tavily_map", urls="https://a.b")
    assert result.data == {"urls": "https://a.b"}
    [warning] = result.meta["warnings"]
    assert "did you mean url?" in warning


def test_a_client_of_mcp_gets_the_finding_as_one_more_block(harness, servers):
    from sources.mcp_servers.test_relayed import through

    harness.nasty = lambda *_, **__: servers["odd"]
    result = asyncio.run(through("direct", harness, "counts", {"cuont": 3}))
    first, second, finding = [block.text for block in result.content]
    assert (first, second) == ("Error: bad arguments", '{"cuont": 3}')
    assert "did you mean count?" in finding
    assert "odd.counts(" in finding


def test_a_secret_argument_is_masked_in_the_servers_own_words(harness, servers):
    from sources.mcp_servers.test_relayed import through

    harness.nasty = lambda *_, **__: servers["odd"]
    result = asyncio.run(through("direct", harness, "counts", {"count": 1, "password": "hunter2-hunter2"}))
    assert result.is_error
    assert "hunter2" not in json.dumps([block.text for block in result.content])


@pytest.mark.parametrize(("tool", "args"), [one[:2] for one in ACCEPTED if one[0] != "tavily_extract"])
def test_code_that_contradicts_a_schema_is_refused_before_its_first_effect(app, tool, args):
    refused = ran(app, f"odd.tells()\n{_call(tool, args)}")
    assert refused.error.code == "invalid_args", refused
    assert refused.error.reason == "check"


def test_code_may_give_a_text_for_a_list_of_texts(app):
    assert ran(app, "odd.tavily_extract(urls='https://a.b')").data == {"urls": ["https://a.b"]}


def test_with_strict_false_the_server_judges_code_too(harness):
    for typecheck in (False, True):
        with harness.app({"odd": harness.nasty("judges", strict=False)}, run={"typecheck": typecheck}) as app:
            for tool, args, got, _ in ACCEPTED:
                result = ran(app, _call(tool, args))
                assert (result.error, result.data) == (None, got)


def _call(tool, args):
    return f"odd.{tool}({', '.join(f'{name}={value!r}' for name, value in args.items())})"
