"""Errors of other people's servers reach a client as the server said them."""

import pytest
from helpers import until
from interfaces.mcp.upstreams import Site, names

CODES = {-32602: -32602, -32000: -32000, -32601: -32601, 7: 7}
OF_CONNECTIONS = (-32020, -32021, -32022, -32042)
TOLD = [
    {"type": "text", "text": "no paper"},
    {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"},
    {"type": "text", "text": "in tray 2"},
]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    site = Site(tmp_path_factory.mktemp("errors"))
    site.config({"odd": site.nasty("judges")})
    yield site
    site.close()


@pytest.fixture(params=["old", "new"])
def direct(site, request):
    peer = site.peer(f"http-{request.param}")
    until(lambda: "odd__fails" in names(peer))
    return peer


def sent(result):
    return {key: result.get(key) for key in ("content", "structuredContent", "isError")}


def test_an_error_keeps_its_blocks_its_data_and_its_meta(direct, site):
    expected = {"content": TOLD, "structuredContent": {"tray": 2}, "isError": True}
    for result in (direct.call("odd__fails"), site.peer("http-old", "search").call("call", {"name": "odd.fails"})):
        assert sent(result) == expected
        assert result["_meta"]["trace"] == "7f"
    silent = direct.call("odd__fails_silently")
    assert (silent["content"], silent["isError"]) == ([], True)


@pytest.mark.parametrize("code", CODES)
def test_a_protocol_error_stays_one(direct, code):
    error = direct.error("tools/call", {"name": "odd__breaks", "arguments": {"code": code}})
    assert error == {"code": code, "message": "the database is gone", "data": {"table": "notes"}}


@pytest.mark.parametrize("code", OF_CONNECTIONS)
def test_a_server_says_nothing_about_the_clients_connection_to_us(direct, code):
    error = direct.error("tools/call", {"name": "odd__breaks", "arguments": {"code": code}})
    assert error == {"code": -32603, "message": "the database is gone"}


def test_a_protocol_error_has_our_finding_in_its_data(direct):
    error = direct.error("tools/call", {"name": "odd__breaks", "arguments": {"code": -1, "colour": "red"}})
    assert error["data"]["table"] == "notes"
    assert "colour: unknown argument" in error["data"]["onetool/hints"][0]


def test_who_does_not_call_it_by_its_name_gets_a_result(site, direct):
    result = site.peer("http-new", "search").call("call", {"name": "odd.breaks", "args": {"code": 7}})
    assert sent(result)["content"] == [{"type": "text", "text": "the database is gone"}]
    assert result["isError"] is True


def test_in_code_it_raises_with_the_same_text(site, direct):
    runner = site.peer("http-old", "run")
    caught = """
def words(call):
    try:
        call()
    except RuntimeError as error:
        return str(error)

words(lambda: odd.fails()) + '|' + words(lambda: odd.breaks(code=7))
"""
    assert runner.text("run", {"code": caught}) == "no paper\nin tray 2|the database is gone"


def test_meta_of_a_result_passes_but_for_what_is_ours(direct):
    for name in ("odd__tells", "odd__fails"):
        meta = direct.call(name)["_meta"]
        assert meta.pop("io.modelcontextprotocol/serverInfo", {"name": "onetool"})["name"] == "onetool"
        assert meta == {"trace": "7f"}
