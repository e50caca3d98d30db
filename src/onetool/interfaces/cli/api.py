"""`onetool api METHOD PATH [KEY=VALUE]...`: sends a request to the REST API, in this process or to a running server.

In this process, the request is one of the user who runs the command, so that every route can be used, also the routes
without a command of their own. A running server gets the token in ONETOOL_TOKEN, if there is one.
"""

import asyncio
import json
import os
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

import click
import msgspec

from onetool.core.principal import OWNER, current_principal
from onetool.interfaces.cli.inputs import STDIN, read
from onetool.interfaces.cli.options import data_options, open_app
from onetool.interfaces.cli.output import print_json, print_note, print_text, printable, stdout
from onetool.interfaces.rest import ASK_PATH, CALL_PATH

if TYPE_CHECKING:
    from onetool.app import App
    from onetool.http.asgi import Asgi
    from onetool.interfaces.rest.route import RestRoute

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
TOKEN_VARIABLE = "ONETOOL_TOKEN"  # noqa: S105 - its name
MAX_BODY = 64 * 1024**2  # bytes of standard input
FAILED = 400  # the first status of an error


class Response:
    """A response: the events of a stream are printed as they come, everything else is kept, to print it as JSON."""

    def __init__(self) -> None:
        self.status = 500
        self.is_stream = False
        self.body = bytearray()

    def begin(self, status: int, content_type: str) -> None:
        self.status, self.is_stream = status, content_type.startswith("text/event-stream")

    def take(self, chunk: bytes) -> None:
        if self.is_stream:
            print_text(chunk.decode(errors="replace").rstrip("\n"))
            stdout().flush()
        else:
            self.body += chunk

    def print(self, as_json: bool) -> None:
        if not self.body:
            return
        try:
            print_json(msgspec.json.decode(self.body), as_json)
        except msgspec.DecodeError:
            stdout().flush()
            stdout().buffer.write(self.body)
            stdout().flush()


def complete_path(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    method, start = ctx.params.get("method"), incomplete.lstrip("/")
    paths = dict.fromkeys(one.path for one in _routes() if method in (None, one.method))
    found = (path.lstrip("/") for path in paths)
    return [f"{'/' if incomplete.startswith('/') else ''}{path}" for path in found if path.startswith(start)]


def complete_value(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    route = _route(ctx.params.get("method", ""), ctx.params.get("path", ""))
    keys = [] if route is None else [*_keys(route.query), *_keys(route.takes)]
    return [f"{key}=" for key in keys if key.startswith(incomplete)]


@click.command()
@click.argument("method", type=click.Choice(METHODS, case_sensitive=False))
@click.argument("path", shell_complete=complete_path)
@click.argument("values", nargs=-1, metavar="[KEY=VALUE]...", shell_complete=complete_value)
@click.option("--server", metavar="URL", help="Ask this running server. Its token is the variable ONETOOL_TOKEN.")
@data_options
def api(ctx: click.Context, method: str, path: str, values: tuple[str, ...], server: str | None, as_json: bool) -> None:
    """Send a request to the REST API, in this process or to a running server.

    KEY=VALUE is a query parameter of the route, else a text in the body; KEY:=JSON is any other value. `-` reads the
    whole body, in JSON, from standard input. The routes are in /openapi.json.

    \b
    onetool api GET stats days=7
    onetool api POST call/tools.echo message=hi
    onetool api PATCH tools/bundles/ID isEnabled:=false --server http://127.0.0.1:8765
    """
    path = f"/{path.lstrip('/')}"
    query, body = _split(_route(method, path), method, values)
    address = quote(path, safe="/%@:,;=+!$&'()*~") + (f"?{urlencode(query)}" if query else "")
    response = Response()
    if server is None:
        asyncio.run(_in_process(open_app(ctx), method, address, body, response))
    else:
        _over_http(server, method, address, body, response)
    response.print(as_json)
    if response.status >= FAILED:
        print_note(f"{method} {path}: {response.status}")
    ctx.exit(0 if response.status < FAILED else 1)


# Reading the arguments


def _routes() -> "list[RestRoute]":
    from onetool.interfaces.rest.app import CALL  # loads REST
    from onetool.interfaces.rest.ask_app import ASK_ROUTES
    from onetool.interfaces.rest.routing import API_ROUTES

    tables = (API_ROUTES, ASK_ROUTES)
    return [CALL, *(route for table in tables for one in table.resources for route in one.methods.values())]


def _route(method: str, path: str) -> "RestRoute | None":
    """Return the route of a request; None if there is none, which the response says."""
    parts = path.strip("/").split("/")

    def fits(route: "RestRoute") -> bool:
        names = route.path.strip("/").split("/")
        return len(names) == len(parts) and all(
            name.startswith("{") or name == part for name, part in zip(names, parts, strict=True)
        )

    found = [one for one in _routes() if one.method == method.upper() and fits(one)]
    return min(found, key=lambda one: one.path.count("{"), default=None)


def _keys(shape: Any) -> list[str]:
    """Return the names of the fields of a Struct."""
    is_struct = isinstance(shape, type) and issubclass(shape, msgspec.Struct)
    return [one.encode_name for one in msgspec.structs.fields(shape)] if is_struct else []


def _split(
    route: "RestRoute | None", method: str, values: tuple[str, ...]
) -> tuple[list[tuple[str, str]], bytes | None]:
    """Return the query and the body."""
    query: list[tuple[str, str]] = []
    fields: dict[str, Any] = {}
    known = () if route is None else _keys(route.query)
    for value in values:
        if value == STDIN:
            continue
        key, equals, text = value.partition("=")
        if not key or not equals:
            raise click.BadParameter(f"{printable(value)!r} is not KEY=VALUE.", param_hint="KEY=VALUE")
        is_data = key.endswith(":")
        key = key.removesuffix(":")
        if key in known or method in ("GET", "DELETE"):
            query.append((key, text))
            continue
        try:
            fields[key] = json.loads(text) if is_data else text
        except ValueError:
            raise click.BadParameter(f"{printable(text)!r} is not JSON.", param_hint=f"{key}:=JSON") from None
    if STDIN in values:
        if fields:
            raise click.UsageError("Give the body either by KEY=VALUE or with -, not both.")
        return query, read(MAX_BODY)
    needs_body = method not in ("GET", "DELETE")
    return query, msgspec.json.encode(fields) if needs_body else None


# Sending


async def _in_process(app: "App", method: str, address: str, body: bytes | None, response: Response) -> None:
    """Let the app's REST API answer."""
    from onetool.http.asgi import HEAD

    current_principal.set(OWNER)
    path, _, query = address.partition("?")
    headers = {} if body is None else {b"content-type": b"application/json"}
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [*headers.items()],
        "root_path": "",
        HEAD: headers,
        "log": {},
        "principal": OWNER,
        "admission": SimpleNamespace(task=None),
    }
    sent = [{"type": "http.request", "body": body or b"", "more_body": False}]

    async def receive() -> dict[str, Any]:
        if sent:
            return sent.pop()
        await asyncio.Event().wait()  # the client never disconnects
        raise AssertionError

    async def send(message: Mapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            response.begin(message["status"], dict(message["headers"]).get(b"content-type", b"").decode())
        else:
            response.take(message.get("body", b""))

    await _asgi(app, path)(scope, receive, send)


def _asgi(app: "App", path: str) -> "Asgi":
    from onetool.interfaces.rest.app import CallApp, RestApp
    from onetool.interfaces.rest.ask_app import AskApp
    from onetool.interfaces.rest.openapi import openapi

    if path == "/openapi.json":
        return openapi(app)
    kinds = {CALL_PATH: CallApp, ASK_PATH: AskApp}
    return kinds.get("/" + path.split("/")[1], RestApp)(app)


def _over_http(server: str, method: str, address: str, body: bytes | None, response: Response) -> None:
    """Send the request to a running server."""
    url = urlsplit(server)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise click.BadParameter("expected http://HOST:PORT or https://HOST.", param_hint="--server")
    headers = {} if body is None else {"Content-Type": "application/json"}
    if token := os.environ.get(TOKEN_VARIABLE):
        headers["Authorization"] = f"Bearer {token}"
    connection = (HTTPSConnection if url.scheme == "https" else HTTPConnection)(url.netloc)
    try:
        connection.request(method, url.path.rstrip("/") + address, body, headers)
        answer = connection.getresponse()
        response.begin(answer.status, answer.getheader("content-type") or "")
        while chunk := answer.read1():
            response.take(chunk)
    except (OSError, HTTPException) as error:
        raise click.ClickException(f"{server} can't be reached: {error}") from None
    finally:
        connection.close()
