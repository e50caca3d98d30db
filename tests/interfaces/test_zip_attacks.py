"""Hostile ZIP archives, by command line, REST and the page: they are refused as a whole, and nothing is kept."""

import gzip
import io
import json
import os
import socket
import stat
import struct
import zipfile
import zlib
from base64 import b64encode
from contextlib import closing, suppress

import pytest
from document_stores import stored_tokens
from interfaces.cli.bundling import here as here  # a fixture
from interfaces.cli.bundling import run
from interfaces.rest.served import Api
from msgspec.structs import replace
from sources.bundles.test_archive import BUNDLE, archive, good, tool

from onetool.sources.bundles.archive import MAX_BYTES, MAX_ENTRY, SMALL, pack, unpack
from onetool.sources.bundles.errors import InvalidError
from onetool.sources.bundles.model import built_in_id

pytestmark = [pytest.mark.attack("ZIP imports"), pytest.mark.filterwarnings("ignore:Duplicate name")]

ZIP = "application/zip"
OTHER_ID = "01890a5d-ac96-774b-bcce-b302099a8058"
THIRD_ID = "01890a5d-ac96-774b-bcce-b302099a8059"
JSON = {"Content-Type": "application/json"}
CENTRAL, END = b"PK\x01\x02", b"PK\x05\x06"


def named(name, text="{}"):
    return archive([*good(), (name, text)])


def of_kind(kind, name="tools/x.json", text="{}", others=None):
    entry = zipfile.ZipInfo(name)
    entry.external_attr = (kind | 0o777) << 16
    return archive([*(others or good()), (entry, text)])


def packed(method):
    return archive([*good(), ("tools/x.json", b"{}" * 99)], compress_type=method)


def patched(field, value, form="<H", header=CENTRAL, data=None):
    """Another value of a field of the last such header."""
    data = bytearray(data or archive([*good(), ("tools/x.json", b" " * 500)]))
    struct.pack_into(form, data, data.rindex(header) + field, value)
    return bytes(data)


def renamed(old, new):
    assert len(old) == len(new)
    return named(old.decode()).replace(old, new)


def with_extra(extra):
    entry = zipfile.ZipInfo("tools/x.json")
    entry.extra = extra
    return archive([*good(), (entry, "{}")])


def unicode_path(name):
    text = b"\x01" + struct.pack("<I", zlib.crc32(b"tools/x.json")) + name.encode()
    return with_extra(struct.pack("<HH", 0x7075, len(text)) + text)


def overlapping():
    data = bytearray(archive([*good(), ("tools/a.json", b"{}"), ("tools/b.json", b"{}")]))
    last = data.rindex(CENTRAL)
    before = data.rindex(CENTRAL, 0, last)
    data[last + 42 : last + 46] = data[before + 42 : before + 46]
    return bytes(data)


def local_name():
    data = named("tools/x.json")
    at = data.index(b"tools/x.json")
    return data[:at] + b"../../x.json" + data[at + 12 :]


def commented(comment):
    buffer = io.BytesIO(pack(BUNDLE, [tool()]))
    with zipfile.ZipFile(buffer, "a") as file:
        file.comment = comment
    return buffer.getvalue()


def changed(name="tools/forecast@1.json", **changes):
    """An archive with other keys in one of its files; None removes one."""
    entries = dict(good())
    data = json.loads(entries[name]) | changes
    entries[name] = json.dumps({key: value for key, value in data.items() if value is not None})
    return archive(entries.items())


def bundle(**changes):
    return changed("bundle.json", **changes)


def text(content, name="tools/x.json"):
    return archive([*(one for one in good() if one[0] != name), (name, content)])


def http(**request):
    return changed(httpImpl={"request": {"urlTemplate": "https://api.example.com/v1/${city}", **request}})


GOOD = pack(BUNDLE, [tool()])
OTHER = pack(replace(BUNDLE, slug="other", id=OTHER_ID), [])

ATTEMPTS = {
    # names
    "up": lambda: named("../x.json"),
    "up from tools": lambda: named("tools/../../x.json"),
    "absolute": lambda: named("/tmp/x.json"),
    "backslash": lambda: named("tools\\x.json"),
    "drive": lambda: named("C:/x.json"),
    "share": lambda: named("//host/share/x.json"),
    "dot": lambda: named("tools/./x.json"),
    "two slashes": lambda: named("tools//x.json"),
    "null": lambda: renamed(b"tools/x.json.exe", b"tools/x.json\0exe"),
    "space at the end": lambda: named("tools/x.json "),
    "stream": lambda: named("tools/x.json:stream"),
    "division slash": lambda: named("tools\u2215..\u2215x.json"),
    "fullwidth slash": lambda: named("tools\uff0fx.json"),
    "turned around": lambda: named("tools/\u202enosj.x.json"),
    "zero width": lambda: named("tools/x\u200b.json"),
    "escape": lambda: named("tools/\x1b[2Jx.json"),
    "no UTF-8": lambda: renamed("tools/\xe4.json".encode(), b"tools/\xff\xfe.json"),
    "another Unicode path": lambda: unicode_path("../../x.json"),
    "bundle as folder": lambda: named("bundle.json/"),
    "very long": lambda: named("tools/" + "x" * 60_000 + ".json"),
    # the same twice
    "same name": lambda: renamed(b"tools/forecasT@1.json", b"tools/forecast@1.json"),
    "same name of the bundle": lambda: renamed(b"bundlE.json", b"bundle.json"),
    "other case": lambda: named("tools/Forecast@1.json"),
    "bundle in capitals": lambda: named("BUNDLE.JSON"),
    "NFC and NFD": lambda: archive([*good(), ("tools/\xe4.json", "{}"), ("tools/a\u0308.json", "{}")]),
    "sharp s": lambda: archive([*good(), ("tools/ss.json", "{}"), ("tools/\xdf.json", "{}")]),
    "ligature": lambda: archive([*good(), ("tools/fi.json", "{}"), ("tools/\ufb01.json", "{}")]),
    "Kelvin": lambda: archive([*good(), ("tools/k.json", "{}"), ("tools/\u212a.json", "{}")]),
    "tool under two names": lambda: named("tools/again.json", good()[1][1]),
    "id twice": lambda: named("tools/again.json", json.dumps({**json.loads(good()[1][1]), "slug": "again"})),
    # kinds of files
    "link": lambda: of_kind(stat.S_IFLNK, text="/etc/passwd"),
    "link as bundle": lambda: of_kind(stat.S_IFLNK, "bundle.json", "/etc/passwd", good()[1:]),
    "pipe": lambda: of_kind(stat.S_IFIFO),
    "device": lambda: of_kind(stat.S_IFCHR),
    "socket": lambda: of_kind(stat.S_IFSOCK),
    "folder": lambda: of_kind(stat.S_IFDIR),
    "folder with content": lambda: of_kind(stat.S_IFDIR, "tools/", "{}"),
    # ways to pack
    "encrypted": lambda: patched(8, 0x1),
    "strongly encrypted": lambda: patched(8, 0x41),
    "masked": lambda: patched(8, 0x2000 | 0x41),
    "patched data": lambda: patched(8, 0x20),
    "AES": lambda: patched(10, 99),
    "lzma": lambda: packed(zipfile.ZIP_LZMA),
    "bzip2": lambda: packed(zipfile.ZIP_BZIP2),
    "zstd": lambda: patched(10, 93),
    "deflated says stored": lambda: patched(10, 0),
    # sizes
    "bomb": lambda: named("tools/x.json", b" " * (MAX_ENTRY - 1)),
    "many small bombs": lambda: archive([*good(), *((f"tools/x{n}.json", b" " * SMALL) for n in range(1100))]),
    "overlapping": lambda: overlapping(),
    "says smaller": lambda: patched(24, 10, "<I"),
    "says larger": lambda: patched(24, 2**31, "<I"),
    "packed size beyond the end": lambda: patched(20, 2**31, "<I"),
    "packed size of nothing": lambda: patched(20, 0, "<I"),
    "another checksum": lambda: patched(16, 0, "<I"),
    "place beyond the end": lambda: patched(42, 2**31, "<I"),
    "64-bit sizes": lambda: with_extra(struct.pack("<HHQQ", 1, 16, 2**63, 2**63)),
    "64-bit sizes that are cut": lambda: with_extra(struct.pack("<HHI", 1, 16, 7)),
    "too many": lambda: archive([*good(), *((f"tools/x{n}.json", "") for n in range(10_001))], compress_type=0),
    # the archive itself
    "data behind": lambda: GOOD + b"#!/bin/sh\n",
    "data before": lambda: b"PK" + GOOD,
    "two archives": lambda: OTHER + GOOD,
    "archive in the comment": lambda: commented(OTHER[:65_000]),
    "end in the comment": lambda: commented(END + bytes(18)),
    "other name at the entry": lambda: local_name(),
    "list at itself": lambda: patched(16, 2**31, "<I", END),
    "fewer entries than listed": lambda: patched(10, 1, "<H", END),
    "list of nothing": lambda: patched(12, 0, "<I", END),
    "several disks": lambda: patched(4, 7, "<H", END),
    "end alone": lambda: END + bytes(18),
    "half": lambda: GOOD[: len(GOOD) // 2],
    "nested": lambda: archive([("bundle.zip", GOOD)]),
    # what is in it
    "built in": lambda: bundle(isBuiltIn=True),
    "built-in tool": lambda: changed(isBuiltIn=True),
    "id of a built-in bundle": lambda: bundle(id=built_in_id("fs")),
    "tool of another bundle": lambda: changed(bundleID=OTHER_ID),
    "deleted": lambda: bundle(softDeletedAt="2026-11-15T16:00:00.000Z"),
    "without id": lambda: bundle(id=None),
    "from the future": lambda: changed(schemaVersion="999"),
    "slug that turns around": lambda: bundle(slug="we\u202eather"),
    "slug with a path": lambda: bundle(slug="../weather"),
    "version with a path": lambda: changed(version="../../1"),
    "key that nobody knows": lambda: changed(handler="os.system"),
    "key twice": lambda: text('{"slug": "a", "slug": "b"}'),
    "NaN": lambda: text('{"slug": NaN}'),
    "deep": lambda: text("[" * 100_000 + "]" * 100_000),
    "number of a million digits": lambda: text('{"slug": ' + "9" * 1_000_000 + "}"),
    "BOM": lambda: text(b"\xef\xbb\xbf{}"),
    "UTF-16": lambda: text("{}".encode("utf-16")),
    "half of a character": lambda: text('{"slug": "\\ud800"}'),
    "no object": lambda: text("[]", "bundle.json"),
    "file instead of an address": lambda: http(urlTemplate="file:///etc/passwd"),
    "user in the address": lambda: http(urlTemplate="https://api.example.com@evil.example/"),
    "header with a line": lambda: http(headers={"X": "a\r\nHost: evil"}),
    "remote schema": lambda: changed(argSchema={"$ref": "https://evil.example/schema.json"}),
    "schema that takes for ever": lambda: changed(argSchema={"type": "string", "pattern": "(a+)+$"}),
    "time that is none": lambda: changed(createdAt="9" * 5000),
}  # fmt: skip


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    folder = tmp_path_factory.mktemp("imports")
    running = Api(real=folder)
    running.folder = folder
    yield running
    running.stop()


def in_json(data, before="", **more):
    return json.dumps({"archive": before + b64encode(data).decode(), **more})


def ways(api, data, dry):
    """Send an archive by REST, as JSON, and as the page does. Gives answers by way."""
    path = f"/tools/imports/zip{'?dryRun=true' if dry else ''}"
    kinds = {
        "rest": {"Content-Type": ZIP},
        "page": {"Content-Type": ZIP, "Origin": api.url, "Sec-Fetch-Site": "same-origin"},
    }
    answers = {way: api.client.post(path, content=data, headers=headers) for way, headers in kinds.items()}
    body = json.dumps({"archive": b64encode(data).decode()})
    return answers | {"json": api.client.post(path, content=body, headers=JSON)}


def kept(api):
    """The names of all bundles that a person has made, also deleted ones, and all files but those of counts."""
    bundles = api.get("/tools/bundles?includeDisabled=true&pageSize=200").json()["bundles"]
    files = {str(one) for one in api.folder.rglob("*.json")}
    return [one["slug"] for one in bundles if not one["isBuiltIn"]], files


LARGE = ("many small bombs", "too many")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long) if name in LARGE else name for name in ATTEMPTS]
)
def test_nothing_of_a_hostile_archive_is_kept(api, here, own_home, name):
    data = ATTEMPTS[name]()
    before, outside = kept(api), {*here.iterdir()}
    for dry in (True, False):
        for way, answer in ways(api, data, dry).items():
            assert answer.status_code in (400, 403, 409, 413), (way, answer.text)
            assert len(answer.content) < 100_000, way
            assert "Traceback" not in answer.text
    assert kept(api) == before
    (here / "x.zip").write_bytes(data)
    for options in ([], ["--dry-run"], ["--as", "mine"]):
        if options == ["--as", "mine"] and name in ("id of a built-in bundle",):
            continue  # it gets another id
        done = run("import", "x.zip", *options)
        said = done.output + str(done.exception or "")
        assert done.exit_code == 1, said
        assert type(done.exception).__name__ in ("SystemExit", "InvalidError", "ForbiddenError"), repr(done.exception)
        assert not {"\x1b", "\u202e", "\0"} & {*said}
    assert {*here.iterdir()} - outside <= {here / "x.zip"}
    assert [one["slug"] for one in json.loads(run("list").stdout) if not one["isBuiltIn"]] == []


def test_no_changed_byte_changes_what_is_read():
    expected = unpack(GOOD)
    for place in range(len(GOOD)):
        for value in (GOOD[place] ^ 0xFF, GOOD[place] ^ 0x01, 0):
            with suppress(InvalidError):
                assert unpack(GOOD[:place] + bytes([value]) + GOOD[place + 1 :]) == expected, (place, value)


REQUESTS = {
    "compressed body": (gzip.compress(GOOD), {"Content-Encoding": "gzip"}, ""),
    "compressed bomb": (lambda: gzip.compress(bytes(50_000_000)), {"Content-Encoding": "gzip"}, ""),
    "too large": (bytes(5 * 1024**2), {}, ""),
    "too large in pieces": (lambda: iter([b"PK", *[bytes(1024**2)] * 5]), {}, ""),
    "form": (GOOD, {"Content-Type": "multipart/form-data; boundary=x"}, ""),
    "text": (GOOD, {"Content-Type": "text/plain"}, ""),
    "no type": (GOOD, {"Content-Type": ""}, ""),
    "other origin": (GOOD, {"Origin": "https://evil.example"}, ""),
    "other port": (GOOD, {"Origin": "http://127.0.0.1:1"}, ""),
    "other site": (GOOD, {"Sec-Fetch-Site": "cross-site"}, ""),
    "other host": (GOOD, {"Host": "evil.example"}, ""),
    "name with a path": (GOOD, {}, "?as=..%2F..%2Fx"),
    "name that turns around": (GOOD, {}, "?as=%E2%80%AEx"),
    "name with a line": (GOOD, {}, "?as=x%0D%0Ay"),
    "query that nobody knows": (GOOD, {}, "?force=true"),
    "name twice": (GOOD, {}, "?as=a&as=b"),
    "Base64 with spaces": (in_json(GOOD, " "), JSON, ""),
    "Base64 of a script": (in_json(b"#!/bin/sh"), JSON, ""),
    "Base64 and more": (in_json(GOOD, force=True), JSON, ""),
    "URL as archive": (json.dumps({"archive": "http://127.0.0.1/x.zip"}), JSON, ""),
    "archive as document": (GOOD, JSON, "/../openapi"),
}  # fmt: skip


@pytest.mark.parametrize("name", REQUESTS)
def test_nothing_is_kept_of_a_hostile_request(api, name):
    body, headers, query = REQUESTS[name]
    before = kept(api)
    target = f"/tools/imports/zip{query}".replace("/zip/..", "")
    answer = api.client.post(
        target, content=body() if callable(body) else body, headers={"Content-Type": ZIP, **headers}
    )
    assert answer.status_code in (400, 403, 413, 415, 421), answer.text
    assert kept(api) == before


SOURCES = ("pipe", "device", "folder", "large", "socket", "address")


@pytest.mark.parametrize("kind", SOURCES)
def test_the_command_reads_regular_files_alone(here, kind):
    name = here / "x.zip"
    with closing(socket.socket(socket.AF_UNIX)) as listening:
        match kind:
            case "pipe":
                os.mkfifo(name)
            case "device":
                name.symlink_to("/dev/zero")
            case "folder":
                name.mkdir()
            case "large":
                with name.open("wb") as file:
                    file.write(b"PK")
                    file.truncate(MAX_BYTES * 4)
            case "socket":
                listening.bind(f"/proc/self/fd/{os.open(here, os.O_RDONLY)}/x.zip")
            case "address":
                name = "http://127.0.0.1:1/x.zip"
    done = run("import", name)
    assert done.exit_code == 1, done.output
    assert [one["slug"] for one in json.loads(run("list").stdout) if not one["isBuiltIn"]] == []


@pytest.fixture
def guarded(tmp_path):
    """A server with a caller of each role, two bundles, and a secret for another host."""
    (tmp_path / "secrets.yaml").write_text('KEY: {"value": "hidden-value-123", "hosts": ["api.other.example"]}\n')
    (tmp_path / "secrets.yaml").chmod(0o600)
    (tmp_path / "onetool.yaml").write_text("secrets: secrets.yaml\nallowedHosts: [api.example.com]\n")
    tokens = stored_tokens(tmp_path)
    roles = {role: tokens.add(role, role=role) for role in ("call", "edit", "admin")}
    running = Api(real=tmp_path, args=("--config", str(tmp_path / "onetool.yaml")))
    running.client.headers["Authorization"] = f"Bearer {roles['admin']}"
    for data in (GOOD, OTHER):
        assert running.client.post("/tools/imports/zip", content=data, headers={"Content-Type": ZIP}).status_code == 200
    running.folder, running.roles = tmp_path, roles
    yield running
    running.stop()


def test_an_archive_does_no_more_than_its_caller_may(guarded):
    """Attempts of callers with a credential: all in one, as each needs a server of its own."""

    def send(data, role, query=""):
        headers = {"Content-Type": ZIP, "Authorization": f"Bearer {guarded.roles[role]}"}
        return guarded.client.post(f"/tools/imports/zip{query}", content=data, headers=headers)

    auth = {"auth": {"type": "bearer", "value": "${KEY}"}}
    attempts = {
        "without the role": (send(GOOD, "call", "?as=mine"), 403),
        "dry run without the role": (send(GOOD, "call", "?as=mine&dryRun=true"), 403),
        "secret of another host": (send(http(**auth), "edit", "?as=mine"), 403),
        "secret in the address": (send(http(urlTemplate="https://api.example.com/${KEY}"), "edit", "?as=mine"), 403),
        "token of the server": (send(http(headers={"X": "${ONETOOL_TOKEN}"}), "edit", "?as=mine"), 403),
        "name of another bundle": (send(bundle(slug="other"), "edit"), 409),
        "version that is here": (send(changed(description="Something else."), "edit"), 409),
        "id of a tool of another bundle": (send(pack(replace(BUNDLE, id=THIRD_ID, slug="x"), [tool()]), "edit"), 409),
        "as a name that is taken": (send(GOOD, "edit", "?as=other"), 409),
    }  # fmt: skip
    wrong = {
        name: (answer.status_code, answer.text[:300])
        for name, (answer, expected) in attempts.items()
        if answer.status_code != expected
    }
    assert wrong == {}
    names, _ = kept(guarded)
    assert sorted(names) == ["other", "weather"]
    everything = send(bundle(source="/etc/x", slug="weather"), "admin").json()
    assert everything["bundles"][0]["what"] == "same"
