"""Files that tools send: by whom they may be named, and how they reach the other server."""

import asyncio
import json
from base64 import b64encode
from email import message_from_bytes

import pytest
from document_stores import stored_tokens
from helpers import cli, trusted
from interfaces.rest.served import Api
from mcp.client import Client
from upstream import Reply, Upstream

SECRET = "app-secret-0123456789"
OTHER_SECRET = "gehëimnisÜber99"
PICTURE = bytes(range(256)) * 40
FILE = {"type": "string"}


class Site:
    """A server whose working folder has some files, with three tools that send files, and what they send them to."""

    def __init__(self, folder):
        self.folder = folder
        self.upstream = Upstream(self.answer)
        self.upstream.__enter__()
        home = folder / ".onetool"
        home.mkdir()
        (home / "secrets.yaml").write_text(f"KEY: {SECRET}\nOTHER: {OTHER_SECRET}\n")
        (home / "secrets.yaml").chmod(0o600)
        config = {
            "allowedHosts": [{"host": self.upstream.netloc, "allowPrivate": True}],
            "secrets": "secrets.yaml",
            "fs": {"roots": [str(folder / "files")]},
        }
        (home / "onetool.yaml").write_text(json.dumps(config))
        files = folder / "files"
        files.mkdir()
        (files / "cat.png").write_bytes(PICTURE)
        (files / "with_secret.txt").write_text(f"key={SECRET}")
        (files / "with_other_secret.bin").write_bytes(b"\xe2" + OTHER_SECRET.encode() + b"\xff")
        (files / "large.bin").write_bytes(b"x" * 200_000)
        (files / 'a"\r\nX-Evil: 1\r\n.png').write_bytes(b"evil")
        (folder / "outside.txt").write_text("outside")
        trusted(folder)
        self.api = Api(real=folder, args=("--config", str(home / "onetool.yaml")))
        bundle = self.api.bundle(slug="mine")
        upload = {"multipart": {"title": "${title}", "key": "${KEY}", "file": {"file": "${file}"}}}
        self.tool(bundle, "upload", upload, title=FILE, file=FILE)
        self.tool(bundle, "put", {"method": "PUT", "bodyFile": "${file}"}, file=FILE)
        self.tool(bundle, "fetch", {"method": "GET"}, {"encoding": "binary"})
        self.tokens = stored_tokens(folder)

    def tool(self, bundle, slug, request, response=None, **properties):
        request = {"method": "POST", "urlTemplate": f"{self.upstream.url}/{slug}", **request}
        content = {
            "type": "http",
            "argSchema": {"type": "object", "properties": properties},
            "httpImpl": {"request": request, "response": response or {}},
            "limits": {"maxRequestBytes": 150_000},
        }
        self.api.tool(bundle, slug, **content, pythonImpl=None, tags=[])

    def answer(self, seen):
        if seen.method == "GET":
            return Reply(headers={"Content-Type": "image/png"}, body=PICTURE)
        return Reply(headers={"Content-Type": "application/json"}, body=b'{"ok": true}')

    def call(self, name, token=None, **args):
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return self.api.ask("POST", f"/call/{name}", args, headers=headers)

    def failure(self, name, token=None, **args):
        """The words of a call that has sent nothing."""
        before = len(self.upstream.seen)
        reply = self.call(name, token, **args)
        assert reply.status_code >= 400, reply.text
        assert len(self.upstream.seen) == before
        return reply.text

    def sent(self):
        """The parts of the last request: name, filename, type and content."""
        seen = self.upstream.seen[-1]
        head = f"Content-Type: {seen.headers['content-type']}\r\n\r\n".encode()
        parts = message_from_bytes(head + seen.body).get_payload()
        names = [part.get_param("name", header="content-disposition") for part in parts]
        return {
            name: (part.get_filename(), part.get("content-type"), part.get_payload(decode=True))
            for name, part in zip(names, parts, strict=True)
        }


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """One for tests that leave it as it was, but for bundles of their own."""
    yield from running(tmp_path_factory.mktemp("site"))


@pytest.fixture
def own_site(tmp_path):
    yield from running(tmp_path)


def running(folder):
    site = Site(folder)
    yield site
    site.api.stop()
    site.upstream.__exit__()


def test_a_path_a_stored_result_and_a_data_url(site):
    assert site.call("mine.upload", title="Cat", file="cat.png").json() == {"ok": True}
    parts = site.sent()
    assert parts["title"] == (None, None, b"Cat")
    assert parts["key"] == (None, None, SECRET.encode())
    assert parts["file"] == ("cat.png", "image/png", PICTURE)
    handle = site.call("mine.fetch").json()["handle"]
    assert site.call("mine.upload", file=handle).json() == {"ok": True}
    assert site.sent()["file"] == ("file.png", "image/png", PICTURE)
    url = f"data:image/gif;name=a%20b.gif;base64,{b64encode(PICTURE).decode()}"
    site.call("mine.upload", file=url)
    assert site.sent()["file"] == ("a b.gif", "image/gif", PICTURE)
    site.call("mine.upload", file="data:text/csv,a%2Cb\nüc")
    assert site.sent()["file"] == ("file.csv", "text/csv", "a,b\nüc".encode())
    site.call("mine.put", file="cat.png")
    assert (site.upstream.seen[-1].body, site.upstream.seen[-1].headers["content-type"]) == (PICTURE, "image/png")
    site.call("mine.upload", title="none")
    assert site.sent().keys() == {"title", "key"}


def test_code_and_the_command_line_send_files(site):
    code = 'handle = mine.fetch()["handle"]\nmine.upload(file=handle, title="from code")["ok"]'
    assert site.api.ask("POST", "/run", {"code": code}).json()["value"] is True
    assert site.sent()["file"][2] == PICTURE
    config = str(site.folder / ".onetool" / "onetool.yaml")
    env = {"ONETOOL_HOME": str(site.folder), "HOME": str(site.folder)}
    args = ("tools", "invoke", "mine.put", "--args", '{"file": "cat.png"}')
    done = cli("--config", config, *args, cwd=site.folder, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert site.upstream.seen[-1].body == PICTURE


def test_an_mcp_client_sends_files(site):
    async def main():
        async with Client(f"{site.api.url}/mcp", cache=None) as client:
            code = 'mine.upload(file="data:text/plain;name=a.txt,Hello", title="from MCP")'
            assert not (await client.call_tool("run", {"code": code})).is_error
            return await client.call_tool("run", {"code": 'mine.upload(file="../outside.txt")'})

    refused = asyncio.run(main())
    assert "outside of the allowed folders" in refused.content[0].text
    assert site.sent()["file"] == ("a.txt", "text/plain", b"Hello")


@pytest.mark.attack("files")
def test_only_those_who_may_read_files_give_a_path(own_site):
    only = own_site.tokens.add("only", tools=("mine.*",))
    both = own_site.tokens.add("both", tools=("mine.*", "fs.read_file"))
    told = own_site.failure("mine.upload", only, file="cat.png")
    assert "the argument `file` is a path, and only callers who may call fs.read_file can give one" in told
    assert "data: URL" in told
    assert own_site.call("mine.upload", only, file="data:,x").json() == {"ok": True}
    assert own_site.call("mine.upload", both, file="cat.png").json() == {"ok": True}
    handle = own_site.call("mine.fetch", both).json()["handle"]
    assert "Handle not found" in own_site.failure("mine.upload", only, file=handle)
    assert own_site.call("mine.upload", both, file=handle).json() == {"ok": True}
    for path in ("./cat.png", str(own_site.folder / "files" / "cat.png"), "missing.png"):
        assert "is a path" in own_site.failure("mine.put", only, file=path)


@pytest.mark.attack("files")
def test_fs_read_file_that_is_switched_off_reads_for_nobody(own_site):
    bundles = own_site.api.get("/tools/bundles?pageSize=100").json()["bundles"]
    fs = next(one for one in bundles if one["slug"] == "fs")
    done = own_site.api.ask("PATCH", f"/tools/bundles/{fs['id']}/tools/read-file/version/1", {"isEnabled": False})
    assert done.status_code == 200, done.text
    assert "fs.read_file" in own_site.failure("mine.put", file="cat.png")


@pytest.mark.attack("files")
@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("../outside.txt", "outside of the allowed folders"),
        ("/etc/passwd", "outside of the allowed folders"),
        ("../.onetool/secrets.yaml", "can't be read as a path"),
        ("missing.png", "does not exist"),
        (".", "is a directory"),
        ("with_secret.txt", "contains a secret"),
        ("with_other_secret.bin", "contains a secret"),
        ("large.bin", "is larger than the tool may send"),
        ("f" * 32, "Handle not found"),
        ("data:image/png;base64,%%%", "can't be decoded"),
        ("data:not a type,x", "media type"),
        ("data:x", "is not a data: URL"),
        ("data:," + "x" * 150_001, "is larger than the tool may send"),
        ("data:," + "%41" * 1_000_000, "is larger than the tool may send"),
        ("file:///etc/passwd", "can't be read as a path"),
        ("\0", "can't be read as a path"),
    ],
)
def test_what_is_refused(site, path, why):
    for name in ("mine.upload", "mine.put"):
        told = site.failure(name, file=path)
        assert "the argument `file` " in told.replace("\\u0060", "`")
        assert why in told
        assert SECRET not in told


@pytest.mark.attack("files")
def test_no_name_adds_a_header_or_a_part(site):
    name = 'a"\r\nX-Evil: 1\r\n.png'
    assert site.call("mine.upload", file=name).json() == {"ok": True}
    raw = site.upstream.seen[-1].body
    assert b'filename="a%22%0D%0AX-Evil: 1%0D%0A.png"\r\n' in raw
    assert b"\r\nX-Evil" not in raw
    site.call("mine.upload", file="data:text/plain;name=%22%0D%0AX-Evil%3A%201,x", title="\r\n--x\r\nX-Evil: 2")
    assert site.sent().keys() == {"title", "key", "file"}
    assert b"\r\nX-Evil: 1" not in site.upstream.seen[-1].body


def test_a_curl_command_becomes_a_tool_that_sends_files(site):
    form = "-F 'photo=@/home/ann/cat.png;type=image/webp' -F title=Cat -F tags=a -F tags=b"
    body = {"command": f"curl {site.upstream.url}/new {form}", "bundle": "taken", "tool": "upload"}
    reply = site.api.ask("POST", "/tools/imports/curl", body)
    assert reply.status_code in (200, 201), reply.text
    assert "photo" in site.failure("taken.upload")
    assert site.call("taken.upload", photo="cat.png").json() == {"ok": True}
    assert site.upstream.seen[-1].body.count(b'name="tags"') == 2
    assert site.sent()["photo"] == ("cat.png", "image/webp", PICTURE)
    assert site.sent()["title"] == (None, None, b"Cat")


def test_a_preview_reads_nothing(site):
    bundles = site.api.get("/tools/bundles?pageSize=100").json()["bundles"]
    bundle = next(one for one in bundles if one["slug"] == "mine")["id"]
    path = f"/tools/bundles/{bundle}/tools/upload/version/1/preview"
    shown = site.api.ask("POST", path, {"args": {"file": "with_secret.txt", "title": "T"}}).json()["requests"][0]
    assert "<content of with_secret.txt>" in shown["body"]
    assert shown["headers"]["Content-Type"].startswith("multipart/form-data; boundary=")
    assert SECRET not in json.dumps(shown)


def test_templates_that_cannot_work(site):
    bundle = site.api.bundle(slug="wrong")
    schema = {"type": "object", "properties": {"file": FILE}}
    for request, pointer in (
        ({"bodyFile": "/etc/passwd"}, "/httpImpl/request/bodyFile"),
        ({"bodyFile": "${KEY}"}, "/httpImpl/request/bodyFile"),
        ({"bodyFile": "x${file}"}, "/httpImpl/request/bodyFile"),
        ({"multipart": {"a": {"file": "/etc/passwd"}}}, "/httpImpl/request/multipart/a/file"),
        ({"multipart": {"a": {"file": "${file}"}, "b": "${file}"}}, "/httpImpl/request"),
        ({"bodyFile": "${file}", "query": {"q": "${file}"}}, "/httpImpl/request"),
        ({"bodyFile": "${file}", "auth": {"type": "bearer", "value": "${file}"}}, "/httpImpl/request"),
        ({"bodyFile": "${file}", "auth": {"type": "hmac", "secret": "${file}"}}, "/httpImpl/request"),
        (
            {
                "bodyFile": "${file}",
                "auth": {"type": "oauth2", "clientId": "c", "tokenUrl": "https://a.example/${file}"},
            },
            "/httpImpl/request",
        ),
        ({"multipart": {"a": {"path": "x"}}}, "/httpImpl/request/multipart/a"),
        ({"multipart": {"${file}": "x"}}, "/httpImpl/request/multipart/${file}"),
        ({"multipart": {}, "headers": {"Content-Type": "multipart/form-data"}}, "/httpImpl/request/headers"),
        ({"multipart": {}, "body": {}}, "/httpImpl/request"),
        ({"multipart": {}, "bodyEncoding": {"b": {"style": "form"}}}, "/httpImpl/request/bodyEncoding/b"),
        ({"body": {}, "bodyEncoding": {"b": {"style": "form"}}}, "/httpImpl/request/bodyEncoding"),
        ({"queryEncoding": {"q": {"style": "form"}}}, "/httpImpl/request/queryEncoding/q"),
        ({"multipart": {"a": "x"}, "bodyEncoding": {"a": {"contentType": "a/b\r\nX: 1"}}}, "/httpImpl/request"),
    ):
        impl = {"request": {"method": "POST", "urlTemplate": "https://a.example", **request}}
        tool = {"type": "http", "argSchema": schema, "httpImpl": impl}
        reply = site.api.ask("PUT", f"{bundle}/tools/t/version/1", tool)
        assert reply.status_code == 400, request
        assert reply.json()["pointer"].startswith(pointer), (request, reply.json())


def test_no_step_uses_the_file_of_another_as_a_text(site):
    bundle = site.api.bundle(slug="wrong")
    url = "https://a.example"
    send = {"name": "send", "request": {"method": "POST", "urlTemplate": url, "bodyFile": "${file}"}}
    for other in (
        {"urlTemplate": f"{url}?f=${{file}}"},
        {"urlTemplate": url, "auth": {"type": "apiKey", "name": "X-Key", "value": "${file}"}},
    ):
        for steps in ([send, {"name": "other", "request": other}], [{"name": "other", "request": other}, send]):
            impl = {"requests": steps}
            schema = {"type": "object", "properties": {"file": FILE}}
            tool = {"type": "http", "argSchema": schema, "httpImpl": impl}
            reply = site.api.ask("PUT", f"{bundle}/tools/t/version/1", tool)
            assert (reply.status_code, reply.json()["pointer"]) == (400, "/httpImpl/requests")
            assert "`${file}` is a file" in reply.json()["detail"]


@pytest.mark.attack("templates")
def test_a_call_that_adds_a_field_of_the_template_is_wrong(own_site):
    """Refused like arguments that the schema refuses: by every interface. Names that outgrow the request fail."""
    bundle = own_site.api.bundle(slug="form")
    form = {
        "headers": {"Content-Type": "application/x-www-form-urlencoded"},
        "body": {"amount": "${amount}", "more": "${more}"},
        "bodyEncoding": {"more": {"style": "form"}},
    }
    own_site.tool(bundle, "pay", form, amount={"type": "integer", "maximum": 10}, more={"type": "object"})
    for more, status in (("{'amount': 1000}", 400), ("{'x': {'[' * 20_000: [1] * 3_000}}", 424)):
        assert own_site.call("form.pay", more=eval(more)).status_code == status
        assert "the argument `more`" in own_site.api.ask("POST", "/run", {"code": f"form.pay(more={more})"}).text
    assert own_site.upstream.seen == []
    assert own_site.call("form.pay", amount=5, more={"note": "x"}).json() == {"ok": True}
    assert own_site.upstream.seen[-1].body == b"amount=5&note=x"


def test_bytes_behind_a_handle_are_downloaded_as_they_came(site):
    kept = site.call("mine.fetch").json()
    reply = site.api.get(f"/results/{kept['handle']}", headers={"Accept": "application/octet-stream"})
    assert (reply.content, reply.headers["content-type"]) == (PICTURE, "application/octet-stream")
    assert reply.headers["content-disposition"] == "attachment; filename*=UTF-8''file.png"
    assert reply.headers["x-content-type-options"] == "nosniff"
