"""The page at `/` and its assets: what is sent, to whom, and that it costs nothing before somebody visits it."""

import gzip
import re
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import httpx
import pytest
from flit_core import wheel
from interfaces.http.test_app import ask, site
from interfaces.http.test_mount import served, starlette

import onetool
from onetool import App
from onetool.interfaces.http.guard import Route
from onetool.interfaces.http.site import READ
from onetool.interfaces.web import FOLDER, PageApp

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types svelte-trusted-html"
)
HTML = (b"accept", b"text/html,application/xhtml+xml,*/*;q=0.8")
BROWSER = ("Accept", "text/html,*/*;q=0.8")
GZIP = (b"accept-encoding", b"gzip, deflate, br")
SCRIPT = "console.log('one');\n" * 100
HASHED = "/assets/index-Bx31aZ09.js"


@pytest.fixture
def folder(tmp_path):
    """A build, and a secret beside it."""
    (tmp_path / "secret.txt").write_text("a secret")
    static = tmp_path / "static"
    (static / "assets").mkdir(parents=True)
    (static / "index.html").write_text("<title>OneTool</title>" + "<p>x</p>" * 200)
    for name in ("index-Bx31aZ09.js", "plain.js"):
        (static / "assets" / name).write_text(SCRIPT)
    (static / "assets" / "icon-C0ffee12.svg").write_text("<svg/>")
    (static / "assets" / "style-_aZ-09xy.css").write_text("p{}")
    (static / "assets" / "font-12345678.woff2").write_bytes(b"f" * 2000)
    (static / "assets" / "link.txt").symlink_to(tmp_path / "secret.txt")
    (static / "assets" / "linked").symlink_to(tmp_path, target_is_directory=True)
    return static


@pytest.fixture
def page(folder):
    app = PageApp(lambda scope: f"connect to {scope['path']}", folder)
    return site(
        Route("/assets", app, protected=False, methods=READ, below=True),
        Route("/", app, protected=False, methods=READ, is_page=True),
    )


def test_the_page_comes_with_its_policy(page, folder):
    status, headers, body = ask(page, "/", headers=[HTML])
    assert (status, body) == (200, (folder / "index.html").read_bytes())
    assert headers[b"content-type"] == b"text/html; charset=utf-8"
    assert headers[b"cache-control"] == b"no-cache"
    assert headers[b"vary"] == b"accept, accept-encoding"
    assert headers[b"content-security-policy"].decode() == POLICY
    assert headers[b"x-frame-options"] == b"DENY"
    assert headers[b"referrer-policy"] == b"no-referrer"
    assert headers[b"cross-origin-opener-policy"] == headers[b"cross-origin-resource-policy"] == b"same-origin"
    assert headers[b"x-content-type-options"] == b"nosniff"
    assert b"camera=()" in headers[b"permissions-policy"]


@pytest.mark.parametrize("accept", [None, b"*/*", b"application/json", b"text/plain"])
def test_who_does_not_ask_for_html_gets_a_text(page, accept):
    status, headers, body = ask(page, "/", headers=[] if accept is None else [(b"accept", accept)])
    assert (status, headers[b"content-type"], body) == (200, b"text/plain; charset=utf-8", b"connect to /")
    assert headers[b"vary"] == b"accept"


@pytest.mark.parametrize(
    ("name", "kind", "caching"),
    [
        ("index-Bx31aZ09.js", "text/javascript; charset=utf-8", "public, max-age=31536000, immutable"),
        ("style-_aZ-09xy.css", "text/css; charset=utf-8", "public, max-age=31536000, immutable"),
        ("icon-C0ffee12.svg", "image/svg+xml", "public, max-age=31536000, immutable"),
        ("font-12345678.woff2", "font/woff2", "public, max-age=31536000, immutable"),
        ("plain.js", "text/javascript; charset=utf-8", "no-cache"),
    ],
)
def test_assets_have_their_types_and_those_with_a_hash_are_kept(page, folder, name, kind, caching):
    status, headers, body = ask(page, f"/assets/{name}")
    assert (status, body) == (200, (folder / "assets" / name).read_bytes())
    assert (headers[b"content-type"].decode(), headers[b"cache-control"].decode()) == (kind, caching)
    assert headers[b"x-content-type-options"] == b"nosniff"
    assert headers[b"content-security-policy"].decode() == POLICY


def test_text_is_packed_once_for_those_who_take_it(page, monkeypatch):
    packings = []
    packed = gzip.compress
    monkeypatch.setattr(gzip, "compress", lambda *args, **more: packings.append(1) or packed(*args, **more))
    for _ in range(3):
        _, headers, body = ask(page, HASHED, headers=[GZIP])
        assert (headers[b"content-encoding"], headers[b"vary"]) == (b"gzip", b"accept-encoding")
        assert gzip.decompress(body).decode() == SCRIPT
        assert int(headers[b"content-length"]) == len(body) < len(SCRIPT) / 5
    assert len(packings) == 3  # the page and two scripts; what is short or packed already is left alone
    for refused in (b"", b"br", b"gzip;q=0", b"gzip; q=0.0, br", b"gzipped"):
        _, headers, body = ask(page, HASHED, headers=[(b"accept-encoding", refused)])
        assert (body.decode(), b"content-encoding" in headers) == (SCRIPT, False), refused
    assert b"content-encoding" in ask(page, HASHED, headers=[(b"accept-encoding", b"br, gzip;q=0.5")])[1]
    assert b"content-encoding" not in ask(page, "/assets/font-12345678.woff2", headers=[GZIP])[1]


def test_a_copy_that_is_the_same_is_not_sent_again(page):
    for path, more in (("/", [HTML]), ("/", [HTML, GZIP]), (HASHED, []), (HASHED, [GZIP])):
        etag = ask(page, path, headers=more)[1][b"etag"]
        assert re.fullmatch(rb'"[0-9a-f]{32}(-gzip)?"', etag)
        for known in (etag, b"W/" + etag, b'"other", ' + etag, b"*"):
            status, headers, body = ask(page, path, headers=[*more, (b"if-none-match", known)])
            assert (status, headers[b"etag"], body) == (304, etag, b""), known
        assert ask(page, path, headers=[*more, (b"if-none-match", b'"other"')])[0] == 200
    assert ask(page, HASHED, headers=[GZIP])[1][b"etag"] != ask(page, HASHED)[1][b"etag"]


@pytest.mark.parametrize(
    "path",
    ["/assets/none.js", "/assets/", "/assets", "/assets/../index.html", "/assets/../../secret.txt",
     "/assets//etc/passwd", "/assets/%2e%2e/index.html", "/assets/..\\secret.txt", "/assets/link.txt",
     "/assets/linked/secret.txt", "/assets/plain.js/", "/assets/PLAIN.JS",
     "/assets/./plain.js"],
)  # fmt: skip
def test_what_is_no_file_of_the_build_is_not_there(page, path):
    status, headers, body = ask(page, path)
    assert (status, headers[b"content-type"]) == (404, b"application/json")
    assert b"There is no file at" in body
    assert b"secret" not in body.replace(b"secret.txt", b"")


def test_only_reading(page):
    for path in ("/", HASHED):
        status, headers, _ = ask(page, path, "POST", [(b"content-type", b"application/json")])
        assert (status, headers[b"allow"]) == (405, b"GET, HEAD")


def test_without_a_build_it_says_what_to_do_until_there_is_one(tmp_path):
    app = PageApp(lambda _scope: "text", tmp_path / "static")
    page = site(Route("/", app, protected=False, is_page=True))
    status, _, body = ask(page, "/", headers=[HTML])
    assert (status, b"`make web`" in body) == (503, True)
    assert ask(page, "/")[2] == b"text"
    (tmp_path / "static").mkdir()
    (tmp_path / "static" / "index.html").write_text("built")
    assert ask(page, "/", headers=[HTML])[2] == b"built"


# The real server


def test_the_real_page_and_each_of_its_files(guarded):
    for path in [FOLDER / "index.html", *FOLDER.rglob("assets/*")]:
        name = "" if path.parent == FOLDER else path.relative_to(FOLDER).as_posix()
        reply = guarded.ask(f"/{name}", headers=[BROWSER])
        assert (reply.status, reply.body) == (200, path.read_bytes())
        assert reply.headers["content-security-policy"] == POLICY
        head = guarded.ask(f"/{name}", "HEAD", [BROWSER, ("Connection", "close")])
        assert (head.status, head.body, head.headers["content-length"]) == (200, b"", str(len(reply.body)))
        assert head.headers["etag"] == reply.headers["etag"]


def test_the_text_tells_strangers_nothing_but_how_to_connect(serve):
    token = "sesame-token-0123456789"
    server = serve(config={"http": {"token": "${MY_OWN_VARIABLE}"}}, env={"MY_OWN_VARIABLE": token})
    url, text = f"http://127.0.0.1:{server.port}", server.ask("/").body.decode()
    assert (
        f"claude mcp add --transport http onetool {url}/mcp --header 'Authorization: Bearer ${{ONETOOL_TOKEN}}'" in text
    )
    assert f'curl {url}/tools/tools -H "Authorization: Bearer $ONETOOL_TOKEN"' in text
    assert "http.token" in text
    assert not any(word in text for word in (token, "MY_OWN", str(server.folder), "time.now", " tools,"))
    assert "Authorization" not in serve().ask("/").body.decode()


def test_nothing_of_the_page_is_loaded_before_the_first_visit(tmp_path):
    code = """
import asyncio, sys
from onetool import App
from onetool.interfaces.http.listen import BoundAddress
from onetool.interfaces.http.site import build_site

def loaded():
    return [name for name in sys.modules if name.startswith("onetool.interfaces.web")]

async def visit(site, path, *headers):
    sent = []
    async def send(message):
        sent.append(message)
    async def receive():
        return {"type": "http.request", "body": b""}
    head = [(b"host", b"localhost:8765"), *headers]
    scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "headers": head}
    await site(scope, receive, send)
    return sent[0]["status"]

async def main():
    with App.open() as app:
        site = build_site(app, BoundAddress("127.0.0.1", 8765, ("127.0.0.1",)), None, lambda scope: "")
        print(await visit(site, "/healthz"), await visit(site, "/login"), len(loaded()))
        print(await visit(site, "/", (b"accept", b"text/html")), len(loaded()) > 0)

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["200 200 0", "200 True"]


def test_the_files_are_read_at_the_first_visit_and_kept(page, folder, monkeypatch):
    reads = []
    real = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: reads.append(path.name) or real(path))
    ask(page, "/")
    assert reads == []  # a text is not a visit
    ask(page, "/", headers=[HTML])
    assert sorted(reads) == sorted(path.name for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    ask(page, HASHED)
    assert len(reads) == len(set(reads))


def test_the_wheel_has_the_files(tmp_path):
    root = Path(__file__).parents[3]
    made = wheel.make_wheel_in(root / "pyproject.toml", tmp_path).file
    with ZipFile(made) as archive:
        names = set(archive.namelist())
    for path in FOLDER.rglob("*"):
        if path.is_file():
            assert f"onetool/interfaces/web/static/{path.relative_to(FOLDER).as_posix()}" in names


# Below a prefix


def test_a_prefix_without_a_slash_leads_to_the_one_with_it(tmp_path):
    async def bare(scope, receive, send):
        """A web app that hands the prefix on as it is, which Starlette does not."""
        await mounted({**scope, "root_path": "/my tools"}, receive, send)

    (tmp_path / "onetool.yaml").write_text("{}")
    with App.open(tmp_path / "onetool.yaml") as app:
        mounted = onetool.asgi(app)
        with served(bare) as url:
            reply = httpx.get(f"{url}/my%20tools?a=b", headers={"Accept": "text/html"})
            assert (reply.status_code, reply.headers["location"]) == (308, "/my%20tools/?a=b")
            assert httpx.get(f"{url}/my%20tools").headers["location"] == "/my%20tools/"
            assert httpx.get(f"{url}/my%20tools/", headers={"Accept": "text/html"}).status_code == 200
        with served(starlette(("/tools", onetool.asgi(app)))) as url:
            reply = httpx.get(f"{url}/tools", headers={"Accept": "text/html"}, follow_redirects=True)
            assert (reply.url.path, reply.status_code) == ("/tools/", 200)
