"""Bundles as ZIP archives: the same bytes each time, nothing hostile out of one, and a plan of what would change."""

import json
import stat
import struct
import zipfile
from io import BytesIO

import pytest
from helpers import calls, each
from msgspec.structs import replace

from onetool.sources.bundles.archive import MAX_ENTRY, pack, plan, unpack
from onetool.sources.bundles.errors import InvalidError
from onetool.sources.bundles.model import Bundle, Tool

ID = "01890a5d-ac96-774b-bcce-b302099a8057"
TIME = "2026-11-15T16:00:00.000Z"
TIMES = {"created_at": TIME, "modified_at": TIME}
BUNDLE = Bundle(id=ID, slug="weather", display_name="Weather", **TIMES)
IMPL = {"request": {"urlTemplate": "https://api.example.com/v1/${city}"}}


def tool(slug="forecast", version="1", number=1, **more):
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    fields = {"type": "http", "arg_schema": schema, "http_impl": IMPL, "description": "What it will be like", **more}
    return Tool(
        id=f"01890a5d-ac96-774b-bcce-{number:012d}", bundle_id=ID, slug=slug, version=version, **TIMES, **fields
    )


def archive(entries, **more):
    """A ZIP file of texts by name; a ZipInfo stands for itself."""
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for name, text in entries:
            file.writestr(name, text, **more)
    return buffer.getvalue()


def good():
    """The entries of a good archive."""
    with zipfile.ZipFile(BytesIO(pack(BUNDLE, [tool()]))) as file:
        return [(entry.filename, file.read(entry)) for entry in file.infolist()]


def refused(data):
    with calls(20_000), pytest.raises(InvalidError) as caught:
        unpack(data)
    return str(caught.value)


def with_entry(name, text="{}"):
    return refused(archive([*good(), (name, text)]))


# There and back


def test_round_trip(tmp_path):
    tools = [
        tool(),
        tool(version="2.0", number=2),
        tool("Größe", "β", 3),
        tool("x" * 64, "y" * 64, 4, is_enabled=False),
    ]
    data = pack(BUNDLE, tools)
    found = unpack(data)
    assert found.mistakes == []
    assert found.bundle == BUNDLE
    assert sorted(found.tools, key=lambda one: one.id) == tools
    file = tmp_path / "weather.zip"
    file.write_bytes(data)
    assert unpack(file) == found


def test_the_same_bytes_each_time():
    tools = [tool(), tool(version="2", number=2)]
    assert pack(BUNDLE, tools) == pack(BUNDLE, reversed(tools))
    assert [name for name, _ in good()] == ["bundle.json", "tools/forecast@1.json"]
    with zipfile.ZipFile(BytesIO(pack(BUNDLE, tools))) as file:
        assert {entry.date_time for entry in file.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert json.loads(file.read("tools/forecast@1.json"))["httpImpl"] == IMPL


def test_what_people_pack_again():
    """With an entry for the folder, without compression."""
    folder = zipfile.ZipInfo("tools/")
    folder.external_attr = (stat.S_IFDIR | 0o755) << 16
    data = archive([(folder, ""), *good()], compress_type=zipfile.ZIP_STORED)
    assert unpack(data).tools == [tool()]


def test_built_in_bundles_are_not_packed():
    with pytest.raises(InvalidError, match="built in"):
        pack(replace(BUNDLE, is_built_in=True), [])


# Hostile forms


@each(
    "name",
    [
        "../evil.json", "tools/../../evil.json", "/etc/evil.json", "C:\\evil.json", "C:evil.json", "tools\\evil.json",
        "tools/a/b.json", "evil.txt", "tools/evil.txt", "tools/.json/..", "tools/\x01.json", "tools/a\n.json",
        "./bundle.json", "nested.zip",
        "tools/" + "x" * 300 + ".json", "__MACOSX/._bundle.json", "bundle.json/", "tools/x.json/", "Tools/x.json",
    ],
)  # fmt: skip
def test_names_that_lead_elsewhere(name):
    words = with_entry(name)
    assert "onetool bundles export" in words


def test_links_and_other_kinds():
    for kind, words in (
        (stat.S_IFLNK, "not a regular file"),
        (stat.S_IFIFO, "not a regular file"),
        (stat.S_IFDIR, "not a regular"),
    ):
        entry = zipfile.ZipInfo("tools/x.json")
        entry.external_attr = (kind | 0o777) << 16
        message = refused(archive([*good(), (entry, "/etc/passwd")]))
        assert words in message
        assert "tools/x.json" in message


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_twice_or_nearly():
    assert "tools/forecast@1.json" in with_entry("tools/forecast@1.json")
    assert "on some systems" in with_entry("tools/FORECAST@1.json")
    assert "on some systems" in refused(archive([*good(), ("tools/ä.json", "{}"), ("tools/a\u0308.json", "{}")]))


def test_a_name_with_a_null():
    """Readers cut it there: what is checked must be what is read."""
    data = archive([*good(), ("tools/y.json.exe", "{}")]).replace(b"tools/y.json.exe", b"tools/y.json\x00exe")
    assert "may contain only" in refused(data)


def test_bombs():
    assert "bomb" in with_entry("tools/x.json", b" " * (MAX_ENTRY - 1))
    assert "too large" in refused(archive([*good(), ("tools/x.json", b" " * (MAX_ENTRY + 1))], compress_type=0))
    many = archive([*good(), *((f"tools/x{n}.json", "") for n in range(10_001))], compress_type=0)
    assert "entries" in refused(many)


def test_no_header_is_believed():
    """An entry that says it is small, and one that says it is large."""
    data = bytearray(archive([*good(), ("tools/x.json", b" " * 500_000)]))
    central = data.rindex(b"PK\x01\x02")
    struct.pack_into("<I", data, central + 24, 10)
    assert refused(bytes(data))
    struct.pack_into("<I", data, central + 24, 2**31)
    assert refused(bytes(data))


def test_overlapping_entries():
    """One body for many entries: the way to make a large bomb of little."""
    data = bytearray(archive([*good(), ("tools/a.json", b"{}"), ("tools/b.json", b"{}")]))
    last = data.rindex(b"PK\x01\x02")
    before = data.rindex(b"PK\x01\x02", 0, last)
    data[last + 42 : last + 46] = data[before + 42 : before + 46]
    assert refused(bytes(data))


def test_encrypted_and_packed_otherwise():
    data = bytearray(archive(good()))
    struct.pack_into("<H", data, data.rindex(b"PK\x01\x02") + 8, 1)
    assert "encrypted" in refused(bytes(data))
    assert "deflate" in refused(archive(good(), compress_type=zipfile.ZIP_LZMA))


@pytest.mark.parametrize("data", [b"", b"PK", b"x" * 1000, b"PK\x05\x06" + bytes(18)])
def test_no_archives(data):
    assert "bundle.json" in refused(data)


def test_half_an_archive():
    data = pack(BUNDLE, [tool()])
    for size in range(0, len(data), 40):
        refused(data[:size])
    flipped = bytearray(data)
    flipped[60] ^= 0xFF
    refused(bytes(flipped))


def test_a_file_that_is_not_there(tmp_path):
    assert "can't be read" in refused(tmp_path / "nothing.zip")


# What is wrong inside


def mistakes(changes, name="tools/forecast@1.json"):
    """Of an archive with other keys in one of its files; None removes one."""
    entries = dict(good())
    data = json.loads(entries[name]) | changes
    entries[name] = json.dumps({key: value for key, value in data.items() if value is not None})
    found = unpack(archive(entries.items()))
    assert [one.file for one in found.mistakes] == [name]
    return found.mistakes[0].message


@each(
    ("changes", "words"),
    [
        ({"schemaVersion": "2"}, "update this one"),
        ({"slug": "a_b"}, "slug"),
        ({"version": None}, "version: it is missing"),
        ({"isBuiltIn": True}, "built-in"),
        ({"id": "x"}, "UUIDv7"),
        ({"argSchema": {"$ref": "https://evil.example"}}, "argSchema: "),
        ({"httpImpl": {}}, "httpImpl: "),
        ({"bundleID": "01890a5d-ac96-774b-bcce-b302099a8058"}, "another bundle"),
        ({"nonsense": 1}, "no such key"),
    ],
)
def test_tools_that_cant_be_used(changes, words):
    assert words in mistakes(changes)


def test_bundles_that_cant_be_used():
    assert "slug" in mistakes({"slug": "a b"}, "bundle.json")
    assert "deleted" in mistakes({"softDeletedAt": TIME}, "bundle.json")
    assert "id: it is missing" in mistakes({"id": None}, "bundle.json")


def test_all_mistakes_are_told():
    entries = [*good(), ("tools/a.json", "{"), ("tools/b.json", b"\xff"), ("tools/c.json", '{"a": 1, "a": 2}')]
    entries.append(("tools/d.json", good()[1][1]))  # the same tool again
    found = unpack(archive(entries))
    assert [one.file for one in found.mistakes] == [f"tools/{name}.json" for name in ("a", "b", "c", "forecast@1")]
    assert "is also in tools/d.json" in found.mistakes[-1].message


# The plan


def planned(here=BUNDLE, tools_here=(), archived=(), bundle=BUNDLE, **more):
    return plan(unpack(pack(bundle, archived)), here, tools_here, **more)


def test_a_bundle_that_is_not_here():
    found = planned(None, (), [tool()])
    assert [row[:3] for row in found.rows] == [("weather", "", "new"), ("forecast", "1", "new")]
    assert (found.refused, found.new_tools, found.is_new, found.changes) == ([], [tool()], True, True)


def test_what_is_new_same_and_kept():
    here = [tool(), tool("old", number=3), tool(version="2", number=2, is_enabled=False)]
    found = planned(BUNDLE, here, [tool(), tool(version="2", number=9), tool(version="3", number=4)])
    assert found.rows == [
        ("weather", "", "same", ""),
        ("forecast", "1", "same", ""),
        ("forecast", "2", "same", "stays disabled, as it is here"),
        ("forecast", "3", "new", ""),
        ("old", "1", "kept", "not in the archive"),
    ]
    assert [one.version for one in found.new_tools] == ["3"]
    assert found.refused == []


def test_a_clash_is_refused_unless_it_becomes_a_new_bundle():
    other = tool(description="Something else", tags=("x",))
    found = planned(BUNDLE, [tool()], [other])
    assert found.rows[1] == ("forecast", "1", "clash", "differs: description, tags")
    assert "forecast@1: this version already exists with different content" in found.refused[0]
    new = planned(BUNDLE, [tool()], [other], as_new=True)
    assert new.refused == []
    assert new.bundle.id != ID
    assert {one.bundle_id for one in new.new_tools} == {new.bundle.id}
    assert new.new_tools[0].id != other.id


def test_what_is_in_the_way():
    assert "built in" in planned(replace(BUNDLE, is_built_in=True), (), [tool()]).refused[0]
    assert "enable it first" in planned(replace(BUNDLE, is_enabled=False), (), [tool()]).refused[0]
    assert planned(replace(BUNDLE, is_enabled=False), [tool()], [tool()]).refused == []


def test_the_bundle_itself():
    found = planned(bundle=replace(BUNDLE, display_name="Other"))
    assert found.rows[0] == ("weather", "", "changed", "differs: displayName")
    assert found.bundle.display_name == "Other"
    back = planned(replace(BUNDLE, soft_deleted_at=TIME))
    assert back.rows[0].what == "changed"


def test_mistakes_refuse_it():
    entries = [*good(), ("tools/a.json", "{")]
    found = plan(unpack(archive(entries)), None, ())
    assert "tools/a.json" in found.refused[0]
    with pytest.raises(InvalidError, match="bundle"):
        plan(unpack(archive([("bundle.json", "{")])), None, ())
