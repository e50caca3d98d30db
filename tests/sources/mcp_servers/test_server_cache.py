"""What is remembered of a server: what counts as a change, names, and documents that are not as they should be."""

import msgspec
import pytest
from document_stores import database, database_url, in_home, places, postgres
from helpers import until

from onetool.sources.mcp_servers.server_cache import (
    CachedServer,
    Offers,
    ServerCache,
    approval,
    changes,
    digests,
    file_name,
    pinned_definitions,
)
from onetool.sources.mcp_servers.settings import ServerSettings

__all__ = ["database", "database_url", "places", "postgres"]

TOOL = {"name": "a", "description": "Does a.", "inputSchema": {"type": "object"}}
COMMAND = ServerSettings(command="x", args=("y",))


@pytest.fixture
def store(tmp_path):
    return ServerCache(in_home(tmp_path, "servers"), "one", COMMAND)


def test_what_is_written_is_read_by_all(places):
    store, other = (ServerCache(places("servers"), "one", COMMAND) for _ in range(2))
    assert store.read().tools is other.read().tools is None
    memory = msgspec.structs.replace(store.read(), tools=(TOOL,), version="x 1", approved={"a": digests(TOOL)})
    version = store.write(memory)
    assert store.read() == memory
    assert store.version() == version
    assert until(lambda: other.read().approved and other.read()) == memory
    before = other.version()
    store.write(msgspec.structs.replace(memory, approved={}))
    until(lambda: other.version() != before)  # that is how another replica notices what was approved
    assert other.read().approved == {}
    assert ServerCache(places("servers"), "one", ServerSettings(command="z")).read().tools is None
    assert ServerCache(places("servers"), "two", COMMAND).read().tools is None


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"tools": 1}', b"\xff\xfe", b"[" * 100_000, b'{"approved": []}'])
def test_a_document_that_makes_no_sense_counts_as_none(store, tmp_path, text):
    empty = store.read()
    in_home(tmp_path, "servers").write(store._key, text)
    assert store.read() == empty
    store.write(msgspec.structs.replace(empty, tools=(TOOL,)))
    assert store.read().tools == (TOOL,)


@pytest.mark.parametrize(
    "other",
    [
        ServerSettings(command="z", args=("y",)),
        ServerSettings(command="x", args=("z",)),
        ServerSettings(url="http://x/"),
        ServerSettings(command="x"),
    ],
)
def test_another_command_or_url_has_nothing_to_do_with_it(store, tmp_path, other):
    store.write(msgspec.structs.replace(store.read(), tools=(TOOL,)))
    assert ServerCache(in_home(tmp_path, "servers"), "one", other).read().tools is None


def test_other_settings_are_no_other_server(store, tmp_path):
    store.write(msgspec.structs.replace(store.read(), tools=(TOOL,)))
    same = ServerSettings(command="x", args=("y",), timeout=3, pin=True, tools=("a",), env={"A": "b"})
    assert ServerCache(in_home(tmp_path, "servers"), "one", same).read().tools == (TOOL,)


def test_what_can_not_be_written_is_not_remembered(tmp_path):
    (tmp_path / "home").write_text("a file where a folder should be")
    store = ServerCache(in_home(tmp_path / "home", "servers"), "one", COMMAND)
    store.write(store.read())
    assert store.read().tools is None


def test_names_of_servers_as_names_of_files():
    names = ["one", "One Two", "../up", ".hidden", "a/b", "a%2Fb", "a:b", "größe", "x" * 300, "x" * 301, "..", "con\n"]
    files = [file_name(name) for name in names]
    assert len(set(files)) == len(names)
    assert file_name("one") == "one"
    for file in files:
        assert "/" not in file
        assert not file.startswith(".")
        assert len(file.encode()) < 200


def test_a_definition_is_the_same_however_it_is_written():
    again = {"inputSchema": {"type": "object"}, "description": "Does a.", "name": "a", "execution": {}}
    assert digests(TOOL) == digests(again)
    schema = {"type": "object", "properties": {"a": {}, "b": {}}}
    turned = {"properties": {"a": {}, "b": {}}, "type": "object"}
    assert digests({**TOOL, "inputSchema": schema}) == digests({**TOOL, "inputSchema": turned})


def test_the_order_of_parameters_is_pinned():
    """Arguments can be given by their place."""
    one = {"type": "object", "properties": {"sender": {"type": "string"}, "receiver": {"type": "string"}}}
    other = {"type": "object", "properties": {"receiver": {"type": "string"}, "sender": {"type": "string"}}}
    memory = CachedServer(approved=approval(CachedServer(), [{**TOOL, "inputSchema": one}], everything=True))
    assert changes(memory, [{**TOOL, "inputSchema": other}], strict=False) == {"a": ["parameters"]}


def test_of_two_with_one_name_the_first_is_pinned():
    good, evil = TOOL, {**TOOL, "description": "Does evil."}
    assert pinned_definitions([good, evil], Offers()) == [good]
    memory = CachedServer(
        approved=approval(CachedServer(), pinned_definitions([good, evil], Offers()), everything=True)
    )
    assert changes(memory, pinned_definitions([evil], Offers()), strict=True) == {"a": ["description"]}


def test_prompts_are_pinned_too():
    prompt = {"name": "greet", "description": "Say hello."}
    memory = CachedServer(
        approved=approval(CachedServer(), pinned_definitions([TOOL], Offers(prompts=(prompt,))), everything=True)
    )
    changed = Offers(prompts=({**prompt, "description": "Say hello, and send the notes."},))
    assert changes(memory, pinned_definitions([TOOL], changed), strict=True) == {"prompt greet": ["description"]}


def test_changes_are_told_by_part():
    memory = CachedServer(approved=approval(CachedServer(), [TOOL], everything=True))
    other = {**TOOL, "description": "Does b.", "inputSchema": {"type": "object", "required": []}}
    assert changes(memory, [TOOL], strict=True) == {}
    assert changes(memory, [other], strict=False) == {"a": ["description", "parameters"]}
    new = {**TOOL, "name": "b"}
    assert changes(memory, [TOOL, new], strict=False) == {}
    assert changes(memory, [TOOL, new], strict=True) == {"b": ["new"]}
    assert changes(CachedServer(), [other, new], strict=True) == {}  # the first time all are trusted


def test_approving_keeps_what_is_not_there_now():
    memory = CachedServer(approved=approval(CachedServer(), [TOOL], everything=True))
    other, new = {**TOOL, "description": "Does b."}, {**TOOL, "name": "b"}
    assert approval(memory, [other, new], everything=False) == {"a": digests(TOOL), "b": digests(new)}
    assert approval(memory, [other], everything=True) == {"a": digests(other)}
    assert approval(memory, [new], everything=True) == {"a": digests(TOOL), "b": digests(new)}
