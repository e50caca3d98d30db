"""`onetool bundles export` and `import`: a bundle goes out and comes back, an API comes in, and nothing clashes."""

import io
import json
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from helpers import cli, trusted
from interfaces.cli.bundling import ECHO, did, refused, run, seen
from interfaces.cli.bundling import here as here  # a fixture

pytestmark = pytest.mark.usefixtures("here")

DOCUMENT = {
    "openapi": "3.1.0",
    "info": {"title": "Pet Store", "version": "1.0"},
    "servers": [{"url": "https://pets.example.com/v1"}],
    "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    "security": [{"token": []}],
    "paths": {
        "/pets/{petId}": {
            "get": {
                "operationId": "getPet",
                "summary": "One pet",
                "parameters": [{"name": "petId", "in": "path", "required": True, "schema": {"type": "string"}}],
                "responses": {"200": {"description": "It"}},
            },
            "trace": {"responses": {}},
        },
        "/pets": {"get": {"operationId": "listPets", "responses": {"200": {"description": "All"}}}},
    },
}


@pytest.fixture
def weather():
    did("create", "weather")
    did("add", "weather/forecast", "forecast.json")
    did("add", "weather/say", "echo.json")
    return did("show", "weather")


def document(**changes):
    return json.dumps({**DOCUMENT, **changes})


def tools_of(name):
    return [(one["slug"], one["version"]) for one in did("show", name)["tools"]]


# Out and back


def test_a_bundle_goes_out_and_comes_back_the_same(weather, here, monkeypatch):
    done = run("export", "weather")
    assert "Wrote weather with 2 tools to weather.zip." in done.stderr
    before = did("show", "weather/forecast")
    monkeypatch.setenv("HOME", str(here / "another"))
    came = did("import", "weather.zip")
    assert came["imported"] is True
    assert did("show", "weather/forecast") == before
    assert did("show", "weather") == weather
    again = did("import", "weather.zip")
    assert {row["what"] for row in again["changes"]} == {"same"}
    assert again["needs"]["secrets"] == [{"name": "WEATHER_TOKEN", "source": None}]


def test_nothing_is_overwritten_unless_that_is_said(weather, here):
    (here / "mine.zip").write_text("mine")
    assert "--force" in refused("export", "weather", "-o", "mine.zip")
    assert (here / "mine.zip").read_text() == "mine"
    assert run("export", "weather", "--output", "mine.zip", "--force").exit_code == 0
    assert zipfile.is_zipfile(here / "mine.zip")
    assert "Can't write nowhere/x.zip" in refused("export", "weather", "-o", "nowhere/x.zip")


def test_a_pipe_carries_the_archive_and_nothing_else(weather, here):
    piped = run("export", "weather", "-o", "-")
    with zipfile.ZipFile(io.BytesIO(piped.stdout_bytes)) as file:
        assert "bundle.json" in file.namelist()
    assert did("import", "-", "--as", "other", stdin=piped.stdout_bytes)["isNew"] is True
    assert tools_of("other") == [("forecast", "1"), ("say", "1")]
    assert did("show", "other")["id"] != weather["id"]
    assert did("show", "other")["slug"] == "other"


def test_what_would_change_is_said_and_nothing_is_changed(weather, here):
    run("export", "weather")
    run("delete", "weather/say", "--yes")
    planned = did("import", "weather.zip", "--dry-run")
    assert [(row["slug"], row["what"]) for row in planned["changes"]] == [
        ("weather", "same"),
        ("forecast", "same"),
        ("say", "new"),
    ]
    assert planned["imported"] is False
    assert tools_of("weather") == [("forecast", "1")]
    assert did("import", "weather.zip")["imported"] is True
    assert tools_of("weather") == [("forecast", "1"), ("say", "1")]


def test_a_bundle_that_was_deleted_comes_back_with_its_tools(weather, here):
    run("export", "weather")
    run("delete", "weather", "--with-tools", "--yes")
    came = did("import", "weather.zip")
    assert came["changes"][0]["detail"] == "was deleted here and is restored"
    assert tools_of(weather["id"]) == [("forecast", "1"), ("say", "1")]


def test_a_version_with_other_content_is_never_replaced(weather, here, monkeypatch):
    run("export", "weather")
    run("delete", "weather/say", "--yes")
    did("add", "weather/say", "-", stdin=json.dumps({**ECHO, "description": "Another one."}))
    for options in ([], ["--dry-run"]):
        assert "say@1: this version already exists with different content" in refused("import", "weather.zip", *options)
        assert "--as SLUG" in refused("import", "weather.zip", *options)
    assert "Nothing was imported" in seen(monkeypatch, "import", "weather.zip", code=1)
    assert "What would change" in seen(monkeypatch, "import", "weather.zip", "--dry-run", code=1)
    assert did("show", "weather/say")["description"] == "Another one."
    assert did("import", "weather.zip", "--as", "theirs")["imported"] is True
    assert "already" in refused("import", "weather.zip", "--as", "theirs")


def test_an_archive_whose_tool_could_never_work_is_refused_as_a_whole(weather, here):
    run("export", "weather")
    with zipfile.ZipFile("weather.zip") as file:
        texts = {name: file.read(name).decode() for name in file.namelist()}
    with zipfile.ZipFile("wrong.zip", "w") as file:
        for name, text in texts.items():
            file.writestr(name, text.replace("https://api.example.com/v1/${city}", "https://api.example.com/${ci ty}"))
    run("delete", "weather", "--with-tools", "--yes")
    assert "forecast@1: httpImpl.request.urlTemplate" in refused("import", "wrong.zip")
    assert did("list")[0]["isBuiltIn"]


def test_what_comes_into_a_bundle_that_is_there_comes_whole_or_not_at_all(weather, here, monkeypatch):
    did("import", "-", stdin=document())
    before = did("show", "pet-store")
    (here / ".onetool").mkdir()
    (here / ".onetool" / "onetool.yaml").write_text("bundles: {max_tools: 3}\n")
    trusted(here)
    did("import", "-", stdin=document())
    assert did("show", "pet-store")["description"] == before["description"]
    more = {**DOCUMENT["paths"], "/owners": DOCUMENT["paths"]["/pets"], "/food": DOCUMENT["paths"]["/pets"]}
    larger = document(paths=more, info={**DOCUMENT["info"], "description": "All of them."})
    assert "the limit of 3 tools" in refused("import", "-", stdin=larger)
    assert did("show", "pet-store")["description"] == before["description"]
    assert len(tools_of("pet-store")) == 2


def test_a_tool_whose_function_is_missing_comes_in_and_is_told(weather, here):
    did("save", "weather/twice", "-", "--description", "Twice.", stdin="weather.say(message=text) * 2")
    run("export", "weather")
    with zipfile.ZipFile("weather.zip") as file:
        texts = {name: file.read(name).decode() for name in file.namelist()}
    with zipfile.ZipFile("theirs.zip", "w") as file:
        for name, text in texts.items():
            file.writestr(name, text.replace('"tools.echo"', '"theirs.echo"'))
    run("delete", "weather", "--with-tools", "--yes")
    came = did("import", "theirs.zip")
    assert [(one["about"], "can't be called yet" in one["why"]) for one in came["notes"]] == [("say@1", True)]
    assert "theirs.echo" in did("show", "weather/say")["disabledReason"]


@pytest.mark.parametrize(("data", "told"), [(b"PK\x03\x04 x", "not a ZIP"), (b"{}", "openapi"), (b"hello", "OpenAPI")])
def test_what_is_neither_is_refused(data, told):
    assert told in refused("import", "-", stdin=data)


# OpenAPI


def test_a_document_becomes_tools_and_says_what_they_need(here, monkeypatch):
    (here / "pets.json").write_text(document())
    came = did("import", "pets.json")
    assert came["bundle"]["slug"] == "pet-store"
    assert tools_of("pet-store") == [("get-pet", "1.0"), ("list-pets", "1.0")]
    assert [one["about"] for one in came["skipped"]] == ["TRACE /pets/{petId}"]
    shown = seen(monkeypatch, "import", "pets.json", "--as", "pets")
    for part in ("2 tools", "TRACE", 'allowedHosts: ["pets.example.com"]', "onetool auth set PETS_TOKEN"):
        assert part in shown
    assert "What would change" in seen(monkeypatch, "import", "pets.json", "--dry-run")


def test_the_next_version_of_a_document_comes_beside_the_last_one(here):
    did("import", "-", stdin=document())
    newer = document(info={"title": "Pet Store", "version": "2.0"})
    came = did("import", "-", stdin=newer)
    assert came["isNew"] is False
    assert {row["what"] for row in came["changes"]} == {"same", "new", "kept"}
    assert ("get-pet", "1.0") in tools_of("pet-store")
    assert ("get-pet", "2.0") in tools_of("pet-store")
    changed = document(servers=[{"url": "https://elsewhere.example.com"}])
    assert "different content" in refused("import", "-", stdin=changed)


def test_yaml_and_a_base_url_for_a_document_that_names_no_host(here):
    (here / "pets.yaml").write_text(
        "openapi: 3.0.3\ninfo: {title: Pets, version: 1.10}\nservers: [{url: /v1}]\n"
        "paths: {/pets: {get: {operationId: listPets, responses: {}}}}\n"
    )
    why = refused("import", "pets.yaml")
    assert "none of its operations can become a tool: GET /pets: its server '/v1' is relative" in why
    did("import", "pets.yaml", "--base-url", "https://pets.example.com", "--token")
    tool = did("show", "pets/list-pets")
    assert tool["version"] == "1.10"
    assert tool["httpImpl"]["request"]["urlTemplate"] == "https://pets.example.com/v1/pets"
    assert tool["needs"]["secrets"] == [{"name": "PETS_TOKEN", "source": None}]


@pytest.fixture
def site():
    class Pages(BaseHTTPRequestHandler):
        def do_GET(self):
            status, text = {"/api.json": (200, document(servers=[])), "/moved": (302, "")}.get(self.path, (404, ""))
            self.send_response(status)
            self.send_header("Location", "/api.json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Pages)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_url_is_read_from_an_allowed_host_alone(here, site):
    refusal = refused("import", f"http://{site}/api.json")
    assert "allowedHosts" in refusal
    (here / ".onetool").mkdir()
    (here / ".onetool" / "onetool.yaml").write_text(f'allowedHosts: [{{host: "{site}", allowPrivate: true}}]\n')
    trusted(here)
    assert "redirects: if you trust the target, import /api.json" in refused("import", f"http://{site}/moved")
    assert "status 404" in refused("import", f"http://{site}/nothing")
    came = run("import", f"http://{site}/api.json")
    assert json.loads(came.stdout)["imported"] is True
    assert "allowedHosts" not in came.stderr
    # Relative to where the document is.
    assert did("show", "pet-store/list-pets")["httpImpl"]["request"]["urlTemplate"] == f"http://{site}/pets"


# The real thing: in processes of its own


def test_from_an_api_to_a_call_by_the_real_command_line(here, site):
    (here / ".onetool").mkdir()
    (here / ".onetool" / "onetool.yaml").write_text(f'allowedHosts: [{{host: "{site}", allowPrivate: true}}]\n')
    trusted(here)
    paths = {"/api.json": {"get": {"operationId": "itself", "responses": {}}}}
    text = document(servers=[{"url": f"http://{site}"}], security=[], paths=paths)
    came = cli("bundles", "import", "-", "--as", "me", cwd=here, stdin=text)
    assert (came.returncode, came.stderr) == (0, "")
    called = cli("tools", "invoke", "me.itself", cwd=here)
    assert json.loads(called.stdout)["result"]["data"]["openapi"] == "3.1.0"
    listed = cli("bundles", "list", cwd=here)
    assert json.loads(listed.stdout)[0]["tools"] == 1
    wrong = cli("bundles", "show", "mee", cwd=here)
    assert (wrong.returncode, wrong.stderr) == (1, "Error: There is no bundle mee; did you mean me?\n")
    bad = cli("bundles", "create", "a b", cwd=here)
    assert bad.returncode == 1
    assert bad.stderr.startswith("Error: the slug 'a b' contains a space")
    assert Path(here, ".onetool", "bundles").is_dir()


# A part of an API, and an API that comes again

CONSTRUCTS = str(Path(__file__).parents[2] / "data" / "openapi" / "constructs.yaml")


def test_a_part_of_a_document():
    came = did("import", CONSTRUCTS, "--tag", "queues", "--tag", "addresses", "--only", "*-create*")
    assert [row["slug"] for row in came["changes"]] == ["constructs", "post-create-queue", "reserved-ips-create"]
    more = did("import", CONSTRUCTS, "--operation", "get /files/{file_id}", "--tag", "Files")
    assert [row["slug"] for row in more["changes"] if row["what"] == "new"] == ["get-files-id"]
    assert len(tools_of("constructs")) == 3
    whole = did("import", CONSTRUCTS)
    assert sorted(row["what"] for row in whole["changes"]) == [*["new"] * 6, *["same"] * 4]


def test_one_reason_is_printed_once(here, monkeypatch):
    xml = {"requestBody": {"required": True, "content": {"text/xml": {}}}}
    paths = {f"/a{n}": {"post": xml} for n in range(5)} | {"/b": {"get": {}}}
    document = {"openapi": "3.1.0", "info": {"title": "Shop"}, "paths": paths}
    (here / "shop.json").write_text(json.dumps(document))
    shown = seen(monkeypatch, "import", "shop.json", "--base-url", "https://a.example")
    assert "Skipped: 5\n  POST /a0, POST /a1, POST /a2 and 2 more: its body is text/xml: only JSON" in shown
    shown = seen(monkeypatch, "import", "shop.json", "--as", "other", code=1)
    assert "POST /a2 and 3 more: its server '/' is relative" in shown
    assert "give its URL (--base-url, over REST baseUrl=)" in shown


def test_a_part_that_is_not_there(weather):
    assert "did you mean queues?" in refused("import", CONSTRUCTS, "--tag", "queue")
    apart = refused("import", CONSTRUCTS, "--tag", "queues", "--only", "/files*")
    assert "leave out one of --only, --tag and --operation" in apart
    assert tools_of("weather")
    run("export", "weather")
    assert "--only, --tag and --operation are for OpenAPI documents" in refused(
        "import", "weather.zip", "--only", "forecast"
    )


def test_a_tool_keeps_the_name_that_it_is_stored_under():
    """An older version named it otherwise, or a user has renamed it."""
    did("import", CONSTRUCTS, "--tag", "addresses")
    did("rename", "constructs/reserved-ips-create@1", "reserved-i-ps-create")
    again = did("import", CONSTRUCTS, "--tag", "addresses")
    assert {row["slug"]: row["what"] for row in again["changes"]} == {
        "constructs": "same",
        "reserved-ips-list": "same",
        "reserved-i-ps-create": "same",
    }
    newer = Path(CONSTRUCTS).read_text(encoding="utf-8").replace('version: "1"', 'version: "2"')
    did("import", "-", "--only", "/reserved_ips", stdin=newer)
    assert ("reserved-i-ps-create", "2") in tools_of("constructs")
    assert "reserved-ips-create" not in dict(tools_of("constructs"))
