"""MCP Apps through us: tools keep what their server lists, pages have their own addresses, calls find their server."""

import json

import pytest
from helpers import until
from interfaces.mcp.upstreams import Site, listing, names

HTML = "text/html;profile=mcp-app"
CSP = {"ui": {"csp": {"connectDomains": ["https://api.example.com"]}, "prefersBorder": True}}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    site = Site(tmp_path_factory.mktemp("apps"))
    servers = {name: site.nasty("apps", env={"NAME": name}) for name in ("maps", "trips")}
    site.config({**servers, "plain": site.nasty("ok")})
    yield site
    site.close()


@pytest.fixture(params=["old", "new"])
def host(site, request):
    peer = site.peer(f"http-{request.param}")
    until(lambda: {"maps__show", "trips__show", "plain__echo"} <= names(peer))
    return peer


def listed(peer, name):
    return next(tool for tool in listing(peer) if tool["name"] == name)


def page(name):
    return f"ui://{name}/view/index.html"


def test_a_tool_keeps_its_title_its_annotations_its_icons_and_its_meta(host):
    show = listed(host, "maps__show")
    assert show["title"] == "Show it"
    assert show["annotations"] == {
        "title": "Show",
        "readOnlyHint": True,
        "destructiveHint": False,
        "idempotentHint": True,
        "openWorldHint": False,
    }
    assert show["icons"] == [{"src": "https://example.com/icon.png", "mimeType": "image/png"}]
    assert show["_meta"] == {
        "ui": {"resourceUri": page("maps")},
        "ui/resourceUri": page("maps"),
        "example.com/a": [1, None],
    }
    assert listed(host, "maps__refresh")["_meta"]["ui"]["visibility"] == ["app"]


@pytest.mark.parametrize("name", ["maps", "trips"])
def test_each_server_has_its_own_page(host, name):
    entry = next(one for one in host.result("resources/list")["resources"] if one["uri"] == page(name))
    assert (entry["title"], entry["mimeType"], entry["_meta"]) == ("The view", HTML, CSP)
    assert listed(host, f"{name}__show")["_meta"]["ui"]["resourceUri"] == entry["uri"]
    assert host.result("resources/read", {"uri": entry["uri"]})["contents"] == [
        {"uri": page(name), "mimeType": HTML, "text": f"<p>{name} ui://view/index.html</p>", "_meta": CSP}
    ]
    (part,) = host.result("resources/read", {"uri": f"ui://{name}/part/7"})["contents"]
    assert part["text"] == f"<p>{name} ui://part/7</p>"


def test_other_resources_keep_their_addresses_and_all_their_parts(host):
    parts = host.result("resources/read", {"uri": "notes://maps"})["contents"]
    assert [(part["uri"], part["text"]) for part in parts] == [
        ("notes://maps/1", "note 1"),
        ("notes://maps/2", "note 2"),
    ]


def test_a_result_names_the_page_of_its_own_server(host):
    result = host.call("trips__show")
    assert result["content"][1]["uri"] == page("trips")
    meta = {key: value for key, value in result["_meta"].items() if not key.startswith("io.modelcontextprotocol/")}
    assert meta == {"ui": {"resourceUri": page("trips")}, "viewUUID": "1"}


def test_a_page_calls_tools_of_its_server_by_their_own_names(host):
    """What a page sends is passed on by its host as it is."""
    for name in ("maps", "trips"):
        assert host.call(f"only_{name}")["content"][0]["text"] == f"{name}.only_{name}"
        assert host.call(f"{name}__refresh")["content"][0]["text"] == f"{name}.refresh"


@pytest.mark.parametrize("name", ["show", "refresh", "for_models", "echo", "now"])
def test_a_name_that_is_not_clearly_one_apps_own_calls_nothing(host, name):
    assert host.error("tools/call", {"name": name, "arguments": {}})["code"] == -32602


def test_tools_of_servers_without_pages_are_not_for_pages(host):
    for name in ("plain__echo", "time__now"):
        assert listed(host, name)["_meta"] == {"ui": {"visibility": ["model"]}}


def test_without_pages_nothing_is_said_of_them(site, tmp_path):
    alone = Site(tmp_path)
    alone.config({"plain": alone.nasty("ok")})
    try:
        peer = alone.peer("stdio-old")
        until(lambda: "plain__echo" in names(peer))
        assert all("_meta" not in tool for tool in listing(peer))
    finally:
        alone.close()


def test_lists_that_a_server_does_not_know_are_empty_and_spoil_no_other(tmp_path):
    alone = Site(tmp_path)
    alone.config({"maps": alone.nasty("apps", "resources/templates/list", env={"NAME": "maps"})})
    try:
        peer = alone.peer("stdio-new")
        until(lambda: "maps__show" in names(peer))
        assert page("maps") in [one["uri"] for one in peer.result("resources/list")["resources"]]
        (part,) = peer.result("resources/read", {"uri": page("maps")})["contents"]
        assert part["text"] == "<p>maps ui://view/index.html</p>"
        assert "can't be listed" not in alone.cli("servers", "logs", "maps").stdout
    finally:
        alone.close()


def test_the_server_hears_that_pages_can_be_shown(host):
    told = json.loads(host.call("maps__client_capabilities")["content"][0]["text"])
    assert told["extensions"]["io.modelcontextprotocol/ui"] == {"mimeTypes": [HTML]}


def test_the_server_hears_that_forms_can_be_filled_in_but_no_pages_opened(host):
    told = json.loads(host.call("maps__client_capabilities")["content"][0]["text"])
    assert told["elicitation"] == {"form": {}}
