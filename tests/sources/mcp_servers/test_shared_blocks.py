"""What is known of a server is found from the configs of other machines, wherever they lie."""

import pytest
from document_stores import database, database_url, in_home, places, postgres
from helpers import until
from msgspec.structs import replace

from onetool.config import load_config
from onetool.sources.mcp_servers.server_cache import ServerCache

__all__ = ["database", "database_url", "places", "postgres"]

TOOL = {"name": "a", "description": "Does a.", "inputSchema": {"type": "object"}}


@pytest.fixture
def server(tmp_path):
    """The server of a config in this folder."""

    def read(folder, block, file="onetool.yaml", **env):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / file).write_text(f"servers: {{ok: {{{block}}}}}\n")
        root = tmp_path / folder / "onetool.yaml"
        if file != "onetool.yaml":
            root.write_text(f"include: [{file}]\n")
        return load_config(root, env={"HOME": str(tmp_path), **env}).servers["ok"]

    return read


def test_a_folder_that_is_not_named_is_that_of_the_config(server, tmp_path):
    assert server("a", "command: x").cwd == tmp_path / "a"
    assert server("a", "command: x, cwd: b").cwd == tmp_path / "a" / "b"


def test_an_included_file_may_lie_elsewhere(server, tmp_path):
    (tmp_path / "c" / "sub").mkdir(parents=True)
    included = server("c", "command: x, cwd: data", "sub/more.yaml")
    assert included.written_folder == server("a", "command: x, cwd: sub/data").written_folder


def remembered(place, settings):
    cache = ServerCache(place, "ok", settings)
    cache.write(replace(cache.read(), tools=(TOOL,)))


def test_what_is_known_of_it_is_found_from_another_folder_if_they_share_a_database(server, places):
    one, two = server("a", "command: x"), server("b", "command: x")
    remembered(places("servers"), one)
    is_shared = places("servers").is_shared
    assert (ServerCache(places("servers"), "ok", two).read().tools is not None) == is_shared
    assert ServerCache(places("servers"), "ok", one).read().tools == (TOOL,)


def test_each_block_has_a_memory_of_its_own_in_a_database(server, database, request):
    from onetool.app.documents import KINDS
    from onetool.database.documents import Documents

    place = Documents(database, "servers", None, KINDS["servers"].follow)
    one, two = server("a", "command: x"), server("b", "command: y")
    remembered(place, one)
    cache = ServerCache(place, "ok", two)
    cache.write(replace(cache.read(), tools=()))
    assert ServerCache(place, "ok", one).read().tools == (TOOL,)
    assert cache.read().tools == ()


def test_what_was_moved_to_postgresql_and_back_is_found(server, database, tmp_path):
    from onetool.database.documents import Documents

    here, there = in_home(tmp_path, "servers"), Documents(database, "servers")
    settings = server("a", "command: x")
    remembered(here, settings)
    move(here, there)
    moved = ServerCache(there, "ok", settings)
    assert moved.read().tools == (TOOL,)
    moved.write(replace(moved.read(), tools=(TOOL, TOOL)))
    until(lambda: len(ServerCache(there, "ok", settings).read().tools) == 2)
    back = in_home(tmp_path / "back", "servers")
    move(there, back)
    assert len(ServerCache(back, "ok", settings).read().tools) == 2


def move(here, there):
    for key in here.keys():  # noqa: SIM118 - no dict
        there.write(key, here.read(key))
