"""What a server lists, and its prompts and resources, come to clients with every member that the server gave them."""

import sys

import pytest
from helpers import until
from interfaces.mcp.upstreams import Site, listing, names
from sources.mcp_servers.harness import SCRIPTS

OURS = ("ot://tools", "ot://results")


@pytest.fixture(scope="module")
def sent():
    """The server's own constants."""
    sys.path.insert(0, str(SCRIPTS))
    try:
        import lists
    finally:
        sys.path.remove(str(SCRIPTS))
    return lists


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    site = Site(tmp_path_factory.mktemp("lists"))
    site.config({"odd": site.nasty("lists")})
    yield site
    site.close()


@pytest.fixture(scope="module", params=["old", "new"])
def peer(site, request):
    peer = site.peer(f"http-{request.param}")
    until(lambda: "odd__few" in names(peer))
    return peer


def theirs(peer, method, kind):
    return [one for one in peer.result(method)[kind] if not one.get("uri", one.get("uriTemplate", "")).startswith(OURS)]


def test_tools_keep_all_their_members(peer, sent):
    listed = [{**one, "name": one["name"][5:]} for one in listing(peer) if one["name"].startswith("odd__")]
    assert listed == sent.TOOLS


def test_prompts_keep_all_their_members(peer, sent):
    assert theirs(peer, "prompts/list", "prompts") == [{**one, "name": f"odd.{one['name']}"} for one in sent.PROMPTS]


def test_resources_keep_all_their_members(peer, sent):
    assert theirs(peer, "resources/list", "resources") == sent.RESOURCES


def test_templates_keep_all_their_members(peer, sent):
    assert theirs(peer, "resources/templates/list", "resourceTemplates") == sent.TEMPLATES


def without_ours(result):
    """Without what a stateless answer always has."""
    meta = {key: value for key, value in result.get("_meta", {}).items() if key != "io.modelcontextprotocol/serverInfo"}
    rest = {key: value for key, value in result.items() if key not in ("_meta", "resultType", "ttlMs", "cacheScope")}
    return {**rest, "_meta": meta} if meta else rest


def test_a_prompt_is_what_the_server_makes_of_it(peer, sent):
    asked = {"name": "odd.all", "arguments": {"place": "Rome"}}
    assert without_ours(peer.result("prompts/get", asked)) == sent.PROMPT


def test_a_resource_is_what_the_server_says_it_is(peer, sent):
    assert without_ours(peer.result("resources/read", {"uri": "notes://all"})) == sent.CONTENTS


@pytest.mark.parametrize(
    ("method", "asked"), [("prompts/get", {"name": "odd.few"}), ("resources/read", {"uri": "notes://few"})]
)
def test_an_error_of_the_server_keeps_its_code(peer, method, asked):
    error = peer.error(method, asked)
    assert error == {"code": -32050, "message": "not today", "data": {"day": 1}}
