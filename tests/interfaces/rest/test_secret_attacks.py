"""Attempts to read secrets through HTTP tools: as an admin those of the server itself, as an editor those of others."""

import io
import json
import zipfile
from base64 import b64encode
from hashlib import sha256

import pytest
from helpers import cli
from interfaces.rest.served import Api, problem
from upstream import Reply, Upstream

pytestmark = pytest.mark.attack("secrets")

TOKEN = "sesame-token-0123456789"
NAMED = {role: f"ot_{role}_0123456789abcdef" for role in ("edit", "admin")}
OPENAI = "sk-openai-0123456789abcdef"
FREE, BOUND = "free-0123456789-free", "bound-0123456789-bound"
CRM = "crm-client-secret-0123456789"
ZIP = {"Content-Type": "application/zip"}


class Site:
    """A real server with credentials, a place that its tools may call, and a caller of each role."""

    def __init__(self, folder):
        self.folder = folder
        self.upstream = Upstream(Reply(headers={"Content-Type": "application/json"}, body=b'{"access_token": "t"}'))
        self.upstream.__enter__()
        self.host = self.upstream.netloc
        self.url = f"http://{self.host}"
        home = folder / ".onetool"
        home.mkdir()
        secrets = {
            "ONETOOL_TOKEN": TOKEN,
            "TOKEN_COPY": TOKEN,
            "TOKEN_HEADER": f"Bearer {TOKEN}",
            "TOKEN_BASE64": b64encode(TOKEN.encode()).decode(),
            "STORED_TOKEN": NAMED["admin"],
            "STORED_HEADER": f"Bearer {NAMED['admin']}",
            "CRM_SECRET": CRM,
            "CRM_COPY": CRM,
            "OPENAI_API_KEY": OPENAI,
            "OPENAI_COPY": OPENAI,
            "OPENAI_HEADER": f"Bearer {OPENAI}",
            "FREE": FREE,
            "BOUND": {"value": BOUND, "hosts": [self.url]},
            "ENCRYPTED": {"value": BOUND, "hosts": [self.host]},
            "ELSEWHERE": {"value": BOUND, "hosts": ["api.example.com", "http://127.0.0.1", "http://127.0.0.1:1"]},
        }
        (home / "secrets.yaml").write_text("".join(f"{name}: {json.dumps(one)}\n" for name, one in secrets.items()))
        (home / "secrets.yaml").chmod(0o600)
        auth = {"type": "client_credentials", "client_id": "c", "client_secret": "${CRM_SECRET}"}
        tokens = [
            {"name": role, "role": role, "hash": f"sha256:{sha256(text.encode()).hexdigest()}"}
            for role, text in NAMED.items()
        ]
        config = {
            "secrets": "secrets.yaml",
            "allowedHosts": [{"host": "*", "allowPrivate": True}, {"host": self.host, "allowPrivate": True}],
            "http": {"token": "${ONETOOL_TOKEN}", "tokens": tokens},
            "servers": {"crm": {"url": "http://127.0.0.1:1/mcp", "auth": auth, "enabled": False}},
        }
        (home / "onetool.yaml").write_text(json.dumps(config))
        self.api = Api(real=folder, args=("--config", str(home / "onetool.yaml")))
        self.number = 0

    def ask(self, role, method, path, body=None, **options):
        headers = {"Authorization": f"Bearer {NAMED[role]}", **options.pop("headers", {})}
        return self.api.ask(method, path, body, headers=headers, **options)

    def bundle(self):
        self.number += 1
        path = f"/tools/bundles/01890a5d-ac96-774b-bcce-{self.number:012x}"
        assert self.ask("admin", "PUT", path, {"slug": f"b{self.number}"}).status_code == 201
        return path

    def stored_by_admin(self, tool, bundle=None):
        path = f"{bundle or self.bundle()}/tools/t/version/1"
        reply = self.ask("admin", "PUT", path, tool)
        assert reply.status_code == 201, reply.text
        return path

    def filled(self, value):
        """The same data with the address of the place for {url} and {host}."""
        return json.loads(json.dumps(value).replace("{url}", self.url).replace("{host}", self.host))

    def close(self):
        self.api.stop()
        self.upstream.__exit__(None, None, None)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    running = Site(tmp_path_factory.mktemp("attacks"))
    yield running
    running.close()


def http(request, schema=None, **more):
    return {"type": "http", "argSchema": schema or {}, "httpImpl": {"request": request}, **more}


def header(text):
    return http({"urlTemplate": "{url}/x", "headers": {"X-A": text}})


# What the server itself uses: even tools of an admin do not send it


OWN = [
    *("ONETOOL_TOKEN", "TOKEN_COPY", "TOKEN_HEADER", "TOKEN_BASE64", "STORED_TOKEN", "STORED_HEADER"),
    *("CRM_SECRET", "CRM_COPY"),
]
KEYS = ["OPENAI_API_KEY", "OPENAI_COPY", "OPENAI_HEADER"]
PLACES = {
    "path": {"urlTemplate": "{url}/${NAME}"},
    "query": {"urlTemplate": "{url}/x", "query": {"k": "${NAME}"}},
    "header": {"urlTemplate": "{url}/x", "headers": {"X-A": "a ${NAME} b"}},
    "body": {"urlTemplate": "{url}/x", "method": "POST", "body": {"k": ["${NAME}"]}},
    "bearer": {"urlTemplate": "{url}/x", "auth": {"type": "bearer", "value": "${NAME}"}},
    "basic": {"urlTemplate": "{url}/x", "auth": {"type": "basic", "username": "me", "password": "${NAME}"}},
    "cookie": {"urlTemplate": "{url}/x", "auth": {"type": "apiKey", "in": "cookie", "name": "k", "value": "${NAME}"}},
    "hmac": {"urlTemplate": "{url}/x", "auth": {"type": "hmac", "secret": "${NAME}", "payload": "{path}"}},
    "prefix": {"urlTemplate": "{url}/x", "auth": {"type": "hmac", "secret": "x", "prefix": "${NAME}"}},
    "token": {
        "urlTemplate": "https://api.example.com/x",
        "auth": {"type": "oauth2", "tokenUrl": "{url}/t", "clientId": "c", "clientSecret": "${NAME}"},
    },
    "token url": {
        "urlTemplate": "https://api.example.com/x",
        "auth": {"type": "oauth2", "tokenUrl": "{url}/${NAME}", "clientId": "c"},
    },
    "refresh": {
        "urlTemplate": "https://api.example.com/x",
        "auth": {
            "type": "oauth2", "grant": "refreshToken", "tokenUrl": "{url}/t", "clientId": "c",
            "refreshToken": "${NAME}", "scope": "s", "clientAuth": "body",
        },
    },
}  # fmt: skip
"""Each place of a request, or of what it logs in with, that a secret can stand in."""


def at(place, name):
    return json.loads(json.dumps(PLACES[place]).replace("NAME", name))


@pytest.mark.parametrize(
    ("name", "place"),
    [*((name, "header") for name in (*OWN, *KEYS)), *((name, one) for name in (OWN[0], KEYS[0]) for one in PLACES)],
)
def test_no_tool_sends_what_the_server_uses(site, name, place):
    path = site.stored_by_admin(site.filled(http(at(place, name))))
    before = len(site.upstream.seen)
    reply = site.ask("admin", "POST", f"{path}/invoke", {"args": {}})
    assert len(site.upstream.seen) == before
    assert name in reply.text
    assert not reply.json()["ok"]


def test_a_later_step_does_not_either(site):
    steps = [{"name": name, "request": site.filled(header(text)["httpImpl"]["request"])}
             for name, text in (("one", "a"), ("two", "${STORED_TOKEN}"))]  # fmt: skip
    path = site.stored_by_admin({"type": "http", "httpImpl": {"requests": steps}})
    before = len(site.upstream.seen)
    reply = site.ask("admin", "POST", f"{path}/invoke", {"args": {}})
    assert len(site.upstream.seen) == before + 1
    assert reply.json()["error"]["message"].startswith("step `two` failed: ")


# Tools of callers who are not admins name only secrets that are bound to the host


def refused(reply):
    found = problem(reply, 403, "secret_not_bound")["detail"]
    assert FREE not in found
    assert BOUND not in found
    return found


@pytest.mark.parametrize("name", ["FREE", "NOT_SET", "ELSEWHERE", "ENCRYPTED", "HOME", "OPENAI_API_KEY"])
@pytest.mark.parametrize("place", PLACES)
def test_an_editor_stores_no_tool_with_it(site, name, place):
    path = f"{site.bundle()}/tools/t/version/1"
    found = refused(site.ask("edit", "PUT", path, site.filled(http(at(place, name)))))
    assert f"onetool auth set {name} " in found
    assert f"--host {site.url}" in found
    assert "then needs a reload" in found
    assert site.ask("edit", "GET", path).status_code == 404


@pytest.mark.parametrize("name", OWN)
def test_an_editor_is_not_told_how_to_bind_what_the_server_uses(site, name):
    found = refused(site.ask("edit", "PUT", f"{site.bundle()}/tools/t/version/1", site.filled(header(f"${{{name}}}"))))
    assert "auth set" not in found


HOST_BY_CALL = {"type": "object", "properties": {"place": {"type": "string", "default": "127.0.0.1"}}}
TRICKS = {
    "the host is an argument": http(
        {"urlTemplate": "http://${place}/x", "headers": {"X-A": "${BOUND}"}}, HOST_BY_CALL
    ),
    "a label of the host is an argument": http(
        {"urlTemplate": "http://${place}.example.com/x", "headers": {"X-A": "${BOUND}"}}, HOST_BY_CALL
    ),
    "the host is a secret": http({"urlTemplate": "http://${BOUND}/x"}),
    "the host is another": http({"urlTemplate": "http://localhost/x", "headers": {"X-A": "${BOUND}"}}),
    "the port is another": http({"urlTemplate": "http://127.0.0.1:9/x", "headers": {"X-A": "${BOUND}"}}),
    "the scheme is another": http({"urlTemplate": "https://{host}/x", "headers": {"X-A": "${BOUND}"}}),
    "the host only looks like it": http({"urlTemplate": "http://127.0.0.1.example.com/x", "query": {"a": "${BOUND}"}}),
    "the token is asked for elsewhere": http({
        "urlTemplate": "{url}/x",
        "auth": {"type": "oauth2", "tokenUrl": "http://localhost:9/t", "clientId": "c", "clientSecret": "${BOUND}"},
    }),
    "the token's host is an argument": http({
        "urlTemplate": "{url}/x",
        "auth": {"type": "oauth2", "tokenUrl": "http://${place}/t", "clientId": "c", "clientSecret": "${BOUND}"},
    }, HOST_BY_CALL),
    "the login page is elsewhere": http({
        "urlTemplate": "{url}/x",
        "auth": {
            "type": "oauth2", "grant": "authorizationCode", "tokenUrl": "{url}/t",
            "authorizationUrl": "https://evil.example/", "clientId": "${BOUND}",
        },
    }),
    "a later step": {"type": "http", "httpImpl": {"requests": [
        {"name": "one", "request": {"urlTemplate": "{url}/x", "headers": {"X-A": "${BOUND}"}}},
        {"name": "two", "request": {"urlTemplate": "http://localhost:9/x", "headers": {"X-A": "${BOUND}"}}},
    ]}},
    "switched off": http({"urlTemplate": "{url}/x", "headers": {"X-A": "${FREE}"}}, isEnabled=False),
    "in the name of a member": http({"urlTemplate": "{url}/x", "method": "POST", "body": {"${FREE}": 1}}),
    "in a body of text": http({
        "urlTemplate": "{url}/x", "method": "POST", "headers": {"Content-Type": "text/plain"}, "body": "a ${FREE}",
    }),
    "after dollars": http({"urlTemplate": "{url}/x", "headers": {"X-A": "$$${FREE}"}}),
    "beside an argument of another case": http(
        {"urlTemplate": "{url}/x", "headers": {"X-A": "${FREE}"}},
        {"type": "object", "properties": {"free": {"type": "string"}}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("trick", TRICKS)
def test_an_editor_gets_around_it_by_no_trick(site, trick):
    refused(site.ask("edit", "PUT", f"{site.bundle()}/tools/t/version/1", site.filled(TRICKS[trick])))


def zipped(site, tool):
    """Export a tool of an admin, so that the archive is as it should be."""
    path = site.stored_by_admin(tool)
    bundle = path.partition("/tools/t/")[0]
    data = site.ask("admin", "GET", f"{bundle}/export").content
    assert zipfile.ZipFile(io.BytesIO(data)).namelist()
    return data


OPENAPI = {
    "openapi": "3.1.0",
    "info": {"title": "Shop", "version": "1"},
    "servers": [{"url": "{url}"}],
    "components": {"securitySchemes": {"free": {"type": "http", "scheme": "bearer"}}},
    "security": [{"free": []}],
    "paths": {"/items": {"get": {"operationId": "items", "responses": {"200": {"description": "All."}}}}},
}


def by_copy(site, tool):
    path = site.stored_by_admin(tool)
    return site.ask("edit", "POST", f"{path}/copy", {"slug": "mine"})


def by_copy_to_another_host(site, tool):
    path = site.stored_by_admin(site.filled(header("${BOUND}")))
    changes = {"httpImpl": {"request": {"urlTemplate": "http://localhost:9/x"}}}
    return site.ask("edit", "POST", f"{path}/copy", {"version": "2", "changes": changes})


def by_copy_with_a_header(site, tool):
    path = site.stored_by_admin(site.filled(header("a")))
    changes = {"httpImpl": {"request": {"headers": {"X-B": "${FREE}"}}}}
    return site.ask("edit", "POST", f"{path}/copy", {"slug": "mine", "changes": changes})


def by_copy_without_the_argument(site, tool):
    schema = {"type": "object", "properties": {"FREE": {"type": "string"}}}
    path = site.stored_by_admin({**tool, "argSchema": schema})
    return site.ask("edit", "POST", f"{path}/copy", {"slug": "mine", "changes": {"argSchema": {"properties": None}}})


def by_copy_to_another_bundle(site, tool):
    path = site.stored_by_admin(tool)
    return site.ask("edit", "POST", f"{path}/copy", {"bundleID": site.bundle().rpartition("/")[2]})


def by_zip(site, tool, query="?as=mine"):
    return site.ask("edit", "POST", f"/tools/imports/zip{query}", content=zipped(site, tool), headers=ZIP)


def by_zip_on_trial(site, tool):
    return by_zip(site, tool, "?as=mine&dryRun=true")


def by_zip_in_base64(site, tool):
    body = {"archive": b64encode(zipped(site, tool)).decode()}
    return site.ask("edit", "POST", "/tools/imports/zip?as=mine", body)


def by_zip_into_the_same_bundle(site, tool):
    """The tool is gone from the bundle, and comes back with the archive."""
    path = site.stored_by_admin(tool)
    bundle = path.partition("/tools/t/")[0]
    data = site.ask("admin", "GET", f"{bundle}/export").content
    assert site.ask("edit", "DELETE", path).status_code == 204
    return site.ask("edit", "POST", "/tools/imports/zip", content=data, headers=ZIP)


def by_openapi(site, tool, query="?as=shop"):
    return site.ask("edit", "POST", f"/tools/imports/openapi{query}", site.filled(OPENAPI))


def by_openapi_on_trial(site, tool):
    return by_openapi(site, tool, "?as=shop&dryRun=true")


def by_openapi_with_a_token(site, tool):
    document = {key: value for key, value in site.filled(OPENAPI).items() if key not in ("components", "security")}
    return site.ask("edit", "POST", "/tools/imports/openapi?as=shop&token=true", document)


def by_openapi_elsewhere(site, tool):
    return by_openapi(site, tool, "?as=shop&baseUrl=http://localhost:9")


def by_curl(site, tool, command='curl -H "Authorization: Bearer $FREE" {url}/x', query=""):
    body = {"command": site.filled(command), "bundle": "curled", "tool": "t"}
    return site.ask("edit", "POST", f"/tools/imports/curl{query}", body)


def by_curl_on_trial(site, tool):
    return by_curl(site, tool, query="?dryRun=true")


def by_curl_with_a_placeholder(site, tool):
    return by_curl(site, tool, "curl -H 'X-Api-Key: ${FREE}' {url}/x")


def by_curl_with_one_more(site, tool):
    return by_curl(site, tool, "curl -H 'X-Api-Key: own-0123456789-own' -H \"Authorization: Bearer $FREE\" {url}/x")


def by_draft(site, tool):
    return site.ask("edit", "POST", "/tools/validate", {"tool": tool})


def by_preview(site, tool):
    return site.ask("edit", "POST", "/tools/preview", {"tool": tool})


WAYS = [
    by_copy, by_copy_to_another_host, by_copy_with_a_header, by_copy_without_the_argument, by_copy_to_another_bundle,
    by_zip, by_zip_on_trial, by_zip_in_base64, by_zip_into_the_same_bundle, by_openapi, by_openapi_on_trial,
    by_openapi_with_a_token, by_openapi_elsewhere, by_curl, by_curl_on_trial, by_curl_with_a_placeholder,
    by_curl_with_one_more, by_draft, by_preview,
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_an_editor_gets_around_it_by_no_other_way(site, way):
    secrets = (site.folder / ".onetool" / "secrets.yaml").read_text()
    before = len(site.upstream.seen)
    assert "onetool auth set " in refused(way(site, site.filled(header("${FREE}"))))
    assert len(site.upstream.seen) == before
    assert (site.folder / ".onetool" / "secrets.yaml").read_text() == secrets


# What goes on working


def sent_by(site, path, **args):
    before = len(site.upstream.seen)
    reply = site.ask("edit", "POST", f"{path}/invoke", {"args": args})
    assert reply.json()["ok"], reply.text
    return site.upstream.seen[before:]


def test_an_editor_uses_a_secret_that_is_bound_to_the_host(site):
    path = f"{site.bundle()}/tools/t/version/1"
    assert site.ask("edit", "PUT", path, site.filled(header("${BOUND}"))).status_code == 201
    [seen] = sent_by(site, path)
    assert seen.headers["x-a"] == BOUND
    assert site.ask("edit", "POST", f"{path}/copy", {"slug": "mine"}).status_code == 201
    assert site.ask("edit", "POST", "/tools/preview", {"tool": site.filled(header("${BOUND}"))}).status_code == 200


def test_a_default_of_an_argument_is_data(site):
    schema = {"type": "object", "properties": {"a": {"type": "string", "default": "${FREE}"}}}
    path = f"{site.bundle()}/tools/t/version/1"
    tool = {**site.filled(header("${a}")), "argSchema": schema}
    assert site.ask("edit", "PUT", path, tool).status_code == 201
    for args in ({}, {"a": "${FREE}"}):
        assert FREE not in sent_by(site, path, **args)[0].raw.decode()


def test_tools_of_the_operator_work_for_everybody(site):
    path = site.stored_by_admin(site.filled(header("${FREE}")))
    assert sent_by(site, path)[0].headers["x-a"] == FREE
    for change in ({"isEnabled": False}, {"isEnabled": True}):
        assert site.ask("edit", "PATCH", path, change).status_code == 200
    assert site.ask("edit", "POST", f"{path}/rename", {"slug": "other"}).status_code == 200
    other = path.replace("/tools/t/", "/tools/other/")
    assert sent_by(site, other)[0].headers["x-a"] == FREE


def test_what_an_editor_brings_with_curl_is_bound_to_its_host(site):
    body = {"command": f"curl -H 'Authorization: Bearer own-0123456789-own' {site.url}/x", "bundle": "c", "tool": "t"}
    reply = site.ask("edit", "POST", "/tools/imports/curl", body)
    assert reply.status_code == 200, reply.text
    [name] = reply.json()["secretsKept"]
    config = str(site.folder / ".onetool" / "onetool.yaml")
    env = {"HOME": str(site.folder), "ONETOOL_HOME": str(site.folder)}
    listed = cli("auth", "list", "--config", config, "--json", cwd=site.folder, env=env)
    rows = {row["name"]: row for row in json.loads(listed.stdout)}
    assert rows[name]["hosts"] == [site.url]
    bundle = f"/tools/bundles/{reply.json()['bundles'][0]['id']}"
    assert sent_by(site, f"{bundle}/tools/t/version/1")[0].headers["authorization"] == "Bearer own-0123456789-own"
    other = header(f"${{{name}}}")["httpImpl"]["request"] | {"urlTemplate": "http://localhost:9/x"}
    refused(site.ask("edit", "PUT", f"{bundle}/tools/u/version/1", http(other)))


def test_an_editor_names_no_unbound_secret_for_a_curl_command(site):
    body = {"command": f"curl -H 'Authorization: Bearer own-0123456789-own' {site.url}/x", "bundle": "d", "tool": "t"}
    [proposed] = site.ask("edit", "POST", "/tools/imports/curl?dryRun=true", body).json()["secretNames"]
    for query in ("", "?dryRun=true"):
        asked = {**body, "secrets": {proposed["name"]: "FREE"}}
        refused(site.ask("edit", "POST", f"/tools/imports/curl{query}", asked))
    found = site.ask("edit", "POST", "/tools/imports/curl", {**body, "secrets": {proposed["name"]: "GEMINI_API_KEY"}})
    problem(found, 409, "secret_in_use")


def test_check_names_unbound_secrets_that_tools_use(site):
    site.stored_by_admin(site.filled(header("${FREE} ${BOUND}")))
    mistakes = site.ask("admin", "GET", "/check").text
    assert "uses the secret FREE, which is not bound to a host" in mistakes
    assert f"onetool auth set FREE --host {site.url}" in mistakes
    assert "uses the secret BOUND" not in mistakes
