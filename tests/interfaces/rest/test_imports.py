"""Bundles and tools in and out over REST: ZIP, curl, OpenAPI."""

import io
import json
import zipfile

import pytest
from interfaces.rest.served import Api, problem

ZIP = {"Content-Type": "application/zip"}
TOOL = {"type": "script", "scriptImpl": {"code": "1"}}
DOCUMENT = {
    "openapi": "3.1.0",
    "info": {"title": "Shop", "version": "1"},
    "servers": [{"url": "https://api.example.com"}],
    "paths": {
        "/items": {"get": {"operationId": "listItems", "responses": {"200": {"description": "All."}}}},
        "/raw": {"trace": {"operationId": "raw", "responses": {"200": {"description": "No tool."}}}},
    },
}
YAML = """\
openapi: 3.1.0
info: {title: Garden, version: "2"}
servers: [{url: "https://api.example.com"}]
paths: {/plants: {get: {operationId: plants, responses: {"200": {description: All.}}}}}
"""


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    folder = tmp_path_factory.mktemp("imports")
    (folder / ".onetool").mkdir()
    (folder / ".onetool" / "onetool.yaml").write_text("menu: run\n")
    running = Api(real=folder, args=("--config", str(folder / ".onetool" / "onetool.yaml")))
    running.folder = folder
    yield running
    running.stop()


@pytest.fixture
def archive(api):
    return export(api)


def export(api):
    """Make a bundle. Returns its path, and the reply with its archive."""
    path = api.bundle(slug="store", description="Things.")
    assert api.ask("PUT", f"{path}/tools/a/version/1", TOOL).status_code == 201
    reply = api.get(f"{path}/export")
    assert reply.headers["content-type"] == "application/zip"
    assert "store.zip" in reply.headers["content-disposition"]
    return path, reply


def state(api):
    """All files of the server but what it counts by itself."""
    files = [one for one in api.folder.rglob("*") if one.is_file() and one.suffix in (".json", ".yaml")]
    return {str(one): one.read_bytes() for one in files}


def send(api, path, data, **headers):
    return api.client.post(path, content=data, headers={"Content-Type": "application/json", **headers})


def test_an_archive_goes_out_and_comes_in(api, archive):
    path, reply = archive
    assert sorted(zipfile.ZipFile(io.BytesIO(reply.content)).namelist()) == ["bundle.json", "tools/a@1.json"]
    assert api.get(f"{path}/export", headers={"If-None-Match": reply.headers["etag"]}).status_code == 304
    before = state(api)
    dry = send(api, "/tools/imports/zip?as=second&dryRun=true", reply.content, **ZIP)
    assert dry.status_code == 200, dry.text
    assert state(api) == before
    real = send(api, "/tools/imports/zip?as=second", reply.content, **ZIP).json()
    assert {**real, "dryRun": True, "bundles": dry.json()["bundles"]} == dry.json()
    assert (real["bundles"][0]["slug"], real["bundles"][0]["what"]) == ("second", "new")
    assert real["tools"] == [{"slug": "a", "version": "1", "what": "new"}]
    assert api.get(f"/tools/bundles/{real['bundles'][0]['id']}/tools/a/version/1").status_code == 200


def test_the_same_archive_again_changes_nothing(api, archive):
    before = state(api)
    found = send(api, "/tools/imports/zip", archive[1].content, **ZIP).json()
    assert [one["what"] for one in (*found["bundles"], *found["tools"])] == ["same", "same"]
    assert state(api) == before


def test_a_deleted_bundle_that_comes_back_beside_another_of_its_name_is_told_before(start, tmp_path):
    api = start(real=tmp_path)
    path, reply = export(api)
    assert api.ask("DELETE", f"{path}/tools/a/version/1").status_code == 204
    assert api.ask("DELETE", path).status_code == 204
    alone = send(api, "/tools/imports/zip?dryRun=true", reply.content, **ZIP).json()
    assert alone["warnings"] == []
    newer = api.bundle(slug="store")
    (told,) = send(api, "/tools/imports/zip?dryRun=true", reply.content, **ZIP).json()["warnings"]
    assert told["about"] == "store"
    assert "was deleted here and is restored" in told["why"]
    assert newer.rpartition("/")[2] in told["why"]
    assert "in code the name refers to this bundle, which is older" in told["why"]
    assert send(api, "/tools/imports/zip?as=old-store&dryRun=true", reply.content, **ZIP).json()["warnings"] == []


def test_an_archive_in_base64(api, archive):
    import base64

    body = json.dumps({"archive": base64.b64encode(archive[1].content).decode()})
    assert send(api, "/tools/imports/zip?as=third", body).json()["bundles"][0]["slug"] == "third"


@pytest.mark.parametrize("dry", ["", "?dryRun=true"])
def test_an_archive_that_is_wrong_is_refused_as_a_whole(api, archive, dry):
    buffer = io.BytesIO(archive[1].content)
    with zipfile.ZipFile(buffer, "a") as file:
        file.writestr("tools/bad@1.json", "{")
    before = state(api)
    path = f"/tools/imports/zip{dry}{'&' if dry else '?'}as=fourth"
    assert "bad@1.json" in problem(send(api, path, buffer.getvalue(), **ZIP), 400, "invalid")["detail"]
    problem(send(api, path, b"PK nonsense", **ZIP), 400, "invalid")
    problem(send(api, path, b"nonsense", **ZIP), 400, "invalid")
    assert state(api) == before


def test_what_clashes_is_a_conflict(api, archive):
    path, reply = archive
    changed = f"{path}/tools/a/version/1"
    assert api.ask("DELETE", changed).status_code == 204
    assert api.ask("PUT", changed, {**TOOL, "scriptImpl": {"code": "2"}}).status_code == 201
    problem(send(api, "/tools/imports/zip", reply.content, **ZIP), 409, "conflict")


def test_an_archive_has_its_own_media_type(api):
    for kind in ("text/plain", "application/octet-stream", "multipart/form-data"):
        reply = send(api, "/tools/imports/zip", b"PK", **{"Content-Type": kind})
        assert "application/zip" in problem(reply, 415, "unsupported_media_type")["detail"]
    problem(send(api, "/tools/imports/curl", b"{}", **ZIP), 415, "unsupported_media_type")
    problem(send(api, "/tools/imports/zip", b"x" * (5 * 1024**2), **ZIP), 413, "too_large")


def test_a_page_of_another_origin_imports_nothing(api, archive):
    reply = send(api, "/tools/imports/zip", archive[1].content, **ZIP, Origin="http://evil.example")
    assert reply.status_code == 403


def test_a_built_in_bundle_is_not_exported(api):
    one = api.get("/tools/bundles").json()["bundles"][0]
    problem(api.get(f"/tools/bundles/{one['id']}/export"), 403, "built_in")


def test_a_secret_that_is_for_some_hosts_keeps_its_name_from_a_curl_command(tmp_path):
    home = tmp_path / ".onetool"
    home.mkdir()
    (home / "onetool.yaml").write_text("secrets: secrets.yaml\n")
    bound = 'EXAMPLE_TOKEN: {"value": "of-somebody-else", "hosts": ["api.other.example"]}\n'
    (home / "secrets.yaml").touch(0o600)
    (home / "secrets.yaml").write_text(bound)
    api = Api(real=tmp_path, args=("--config", str(home / "onetool.yaml")))
    try:
        command = "curl -H 'Authorization: Bearer hidden-value-1' https://api.example.com/v1"
        reply = api.ask("POST", "/tools/imports/curl", {"command": command, "bundle": "weather", "tool": "look"})
        assert (reply.status_code, reply.json().get("secretsKept")) == (200, ["EXAMPLE_TOKEN_2"])
    finally:
        api.stop()
    assert (home / "secrets.yaml").read_text().startswith(bound)


def test_a_curl_command_becomes_a_tool_and_its_credentials_secrets(api):
    secret = "very-hidden-value-123"
    body = {"command": f"curl -H 'Authorization: Bearer {secret}' 'https://api.example.com/v1?city=Oslo'",
            "bundle": "weather", "tool": "forecast", "description": "The weather."}  # fmt: skip
    before = state(api)
    dry = api.ask("POST", "/tools/imports/curl?dryRun=true", body)
    assert dry.status_code == 200, dry.text
    assert state(api) == before
    real = api.ask("POST", "/tools/imports/curl", body)
    found = real.json()
    assert {**found, "dryRun": True, "bundles": dry.json()["bundles"]} == dry.json()
    assert found["secretsKept"] == ["EXAMPLE_TOKEN"]
    assert found["needs"]["hosts"][0]["host"] == "api.example.com"
    assert secret not in real.text
    assert secret in next(api.folder.rglob("secrets.yaml")).read_text()
    path = f"/tools/bundles/{found['bundles'][0]['id']}/tools/forecast/version/1"
    assert "${EXAMPLE_TOKEN}" in api.get(path).text
    assert secret not in api.get(path).text
    problem(api.ask("POST", "/tools/imports/curl", body), 409, "exists")
    again = api.ask("POST", "/tools/imports/curl", {**body, "version": "2"}).json()
    assert again["secretsKept"] == ["EXAMPLE_TOKEN_2"], "a name must not tell whether a value was guessed"


def test_a_secret_of_a_command_gets_another_name_or_is_one_that_exists(tmp_path):
    home = tmp_path / ".onetool"
    home.mkdir()
    (home / "onetool.yaml").write_text("secrets: secrets.yaml\n")
    kept = 'METEO: {"value": "hidden-value-0", "hosts": ["api.example.com"]}\n'
    (home / "secrets.yaml").touch(0o600)
    (home / "secrets.yaml").write_text(kept)
    api = Api(real=tmp_path, args=("--config", str(home / "onetool.yaml")))

    def come(tool, query="", **names):
        command = "curl -H 'Authorization: Bearer hidden-value-1' https://api.example.com/v1"
        body = {"command": command, "bundle": "weather", "tool": tool, "secrets": names}
        return api.ask("POST", f"/tools/imports/curl{query}", body)

    try:
        proposed = come("look", "?dryRun=true").json()["secretNames"]
        assert proposed == [{"name": "EXAMPLE_TOKEN", "as": "EXAMPLE_TOKEN", "isNew": True}]
        found = come("look", EXAMPLE_TOKEN="WEATHER_KEY").json()
        assert found["secretNames"] == [{"name": "EXAMPLE_TOKEN", "as": "WEATHER_KEY", "isNew": True}]
        assert found["secretsKept"] == ["WEATHER_KEY"]
        found = come("again", EXAMPLE_TOKEN="METEO").json()
        assert (found["secretsKept"], found["secretNames"][0]["isNew"]) == ([], False)
        path = f"/tools/bundles/{found['bundles'][0]['id']}/tools"
        assert "${WEATHER_KEY}" in api.get(f"{path}/look/version/1").text
        assert "${METEO}" in api.get(f"{path}/again/version/1").text
        problem(come("wrong", EXAMPLE_TOKEN="OPENAI_API_KEY"), 409, "secret_in_use")
        problem(come("wrong", EXAMPLE_TOKEN="not a name"), 400, "invalid")
        problem(come("wrong", NOBODY="METEO"), 400, "invalid")
    finally:
        api.stop()
    after = (home / "secrets.yaml").read_text()
    assert after.startswith(kept)
    assert after.count("hidden-value-1") == 1


def test_a_command_that_is_none_is_refused(api):
    before = state(api)
    body = {"command": "wget http://x.example", "bundle": "b", "tool": "t"}
    problem(api.ask("POST", "/tools/imports/curl", body), 400, "invalid")
    problem(api.ask("POST", "/tools/imports/curl", {"command": "curl http://x.example"}), 400, "invalid")
    problem(api.ask("POST", "/tools/imports/curl", {**body, "more": 1}), 400, "invalid")
    assert state(api) == before


@pytest.mark.parametrize(
    ("data", "kind", "slug"),
    [(json.dumps(DOCUMENT), "application/json", "shop"), (YAML, "application/yaml", "garden")],
)
def test_a_document_becomes_tools(api, data, kind, slug):
    before = state(api)
    dry = send(api, "/tools/imports/openapi?dryRun=true", data, **{"Content-Type": kind})
    assert dry.status_code == 200, dry.text
    assert state(api) == before
    real = send(api, "/tools/imports/openapi", data, **{"Content-Type": kind}).json()
    assert real["bundles"][0]["slug"] == slug
    assert [one["what"] for one in real["tools"]] == ["new"]
    assert {**real, "dryRun": True, "bundles": dry.json()["bundles"]} == dry.json()
    assert bool(real["skipped"]) is (slug == "shop")
    listed = api.get(f"/tools/tools?bundleIDs={real['bundles'][0]['id']}&fields=slug").json()["tools"]
    assert listed == [{"slug": one["slug"]} for one in real["tools"]]


def test_a_document_at_a_host_that_is_not_allowed_is_not_fetched(api):
    reply = api.ask("POST", "/tools/imports/openapi?url=http://127.0.0.1:9/openapi.json")
    assert "allowedHosts" in problem(reply, 400, "invalid")["detail"]
    problem(api.ask("POST", "/tools/imports/openapi?url=file:///etc/passwd"), 400, "bad_parameter")
    problem(send(api, "/tools/imports/openapi", "{}"), 400, "invalid")


def test_with_an_allow_list_nothing_comes_in(start, tmp_path):
    api = start(real=tmp_path, args=("--tool-allow", "time.now"))
    for path in ("zip", "curl", "openapi", "servers"):
        problem(api.ask("POST", f"/tools/imports/{path}", {}), 403, "read_only")
    assert "POST" not in api.ask("OPTIONS", "/tools/imports/zip").headers["allow"]


def test_a_part_of_a_document(api):
    paths = {f"/{name}": {"get": {"operationId": name, "tags": [f"{name}, or not"]}} for name in ("apples", "pears")}
    data = json.dumps({**DOCUMENT, "info": {"title": "Fruit", "version": "1"}, "paths": paths})
    for part in (
        "only=/app*",
        "tag=apples,%20or%20not",
        "operation=GET%20/apples",
        "operation=get%20/apples",
        "tag=Apples,%20OR%20not",
        "operation=apples&tag=apples,+or+not",
    ):
        found = send(api, f"/tools/imports/openapi?dryRun=true&{part}", data).json()
        assert [one["slug"] for one in found["tools"]] == ["apples"], part
    found = send(api, "/tools/imports/openapi?only=app*&only=pea*", data).json()
    assert [one["slug"] for one in found["tools"]] == ["apples", "pears"]
    assert (
        "did you mean pears?"
        in problem(send(api, "/tools/imports/openapi?operation=pear", data), 400, "invalid")["detail"]
    )
    several = problem(send(api, "/tools/imports/openapi?only=app*&operation=pears", data), 400, "invalid")
    assert "leave out one of" in several["detail"]
    assert "only=, tag= and operation=" in several["detail"]
    problem(send(api, "/tools/imports/openapi?only=", data), 400, "bad_parameter")
    problem(send(api, "/tools/imports/zip?only=a", b"PK", **ZIP), 400, "unknown_parameter")
