"""The page at /docs: routes in their groups, what each takes and gives, how to call it, and the shapes of it all."""

import json
from collections.abc import Iterable, Iterator
from html import escape
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from onetool.interfaces.asgi import Asgi, Receive, Scope, Send, respond
from onetool.interfaces.rest.docs.look import STYLE
from onetool.interfaces.rest.docs.shapes import kind_of, of_component
from onetool.interfaces.rest.openapi import openapi_document

if TYPE_CHECKING:
    from onetool.app import App

Part = dict[str, Any]

# No script, nothing loaded, no frame around it: there is nothing here that an enemy's page could use.
SAFE = [
    (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
]


def docs(app: "App") -> Asgi:
    """The route /docs. Its examples lead to where the reader has come from."""

    async def show(scope: Scope, _receive: Receive, send: Send) -> None:
        host = next((value for name, value in scope["headers"] if name == b"host"), b"127.0.0.1:8765")
        text = page(openapi_document(app), f"{scope.get('scheme', 'http')}://{host.decode('latin-1')}")
        await respond(send, 200, text.encode(), b"text/html; charset=utf-8", SAFE)

    return show


def page(document: Part, base: str) -> str:
    operations = list(_operations(document))
    title = f"{document['info']['title']} REST API"
    return "".join(
        [
            '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n",
            _nav(document, operations),
            f"<main>\n<h1>{escape(title)}</h1>\n",
            f"<p><small>Version {escape(document['info']['version'])} · ",
            '<a href="/openapi.json">openapi.json</a></small></p>\n',
            *(f"<p>{_words(text)}</p>\n" for text in document["info"]["description"].split("\n\n")),
            *_groups(document, operations, base),
            '<h2 id="schemas">Shapes</h2>\n',
            *(of_component(name, document["components"]["schemas"][name]) for name in _shapes(document)),
            "</main>\n</html>\n",
        ]
    )


def _operations(document: Part) -> Iterator[tuple[str, str, Part]]:
    """Address, method and what is said of it, with the parameters of the address."""
    for address, item in document["paths"].items():
        for method, one in item.items():
            if method != "parameters":
                yield address, method, {**one, "parameters": [*item["parameters"], *one["parameters"]]}


def _nav(document: Part, operations: Iterable[tuple[str, str, Part]]) -> str:
    lines = ['<nav aria-label="Contents">\n']
    for tag in document["tags"]:
        lines.append(f"<h2>{escape(tag['name'])}</h2>\n<ul>\n")
        for _, method, one in operations:
            if tag["name"] in one["tags"]:
                mark = f'<span class="{method}">{method.upper()}</span>'
                lines.append(f'<li><a href="#{one["operationId"]}">{mark} {escape(one["summary"])}</a></li>\n')
        lines.append("</ul>\n")
    lines.append('<h2><a href="#schemas">Shapes</a></h2>\n<ul>\n')
    lines += [f'<li><a href="#schema-{name}">{name}</a></li>\n' for name in map(escape, _shapes(document))]
    return "".join([*lines, "</ul>\n</nav>\n"])


def _shapes(document: Part) -> list[str]:
    return sorted(document["components"]["schemas"])


def _groups(document: Part, operations: list[tuple[str, str, Part]], base: str) -> Iterator[str]:
    for tag in document["tags"]:
        yield f"<h2>{escape(tag['name'])}</h2>\n"
        for address, method, one in operations:
            if tag["name"] in one["tags"]:
                yield _article(address, method, one, base, bool(document.get("security")))


def _article(address: str, method: str, one: Part, base: str, needs_token: bool) -> str:
    body = one.get("requestBody")
    parts = [
        f'<article id="{one["operationId"]}">\n<h3>{escape(one["summary"])}</h3>\n',
        f'<p class="address"><span class="method {method}">{method.upper()}</span>{escape(address)}</p>\n',
        f"<p>{_words(one['description'])}</p>\n" if "description" in one else "",
        _table("Parameters", map(_parameter, one["parameters"])),
    ]
    if body:
        schema = body["content"]["application/json"]["schema"]
        needed = "" if body["required"] else " (may be left out)"
        parts.append(f"<h4>Body</h4>\n<p>{kind_of(schema)}{needed}</p>\n")
    parts.append(f"<h4>Example</h4>\n<pre>{escape(_curl(address, method, one, base, needs_token))}</pre>\n")
    answers = sorted(one["responses"].items())
    parts.append(_table("Answers", (_answer(status, said) for status, said in answers if status < "400")))
    refused = _table("", (_answer(status, said) for status, said in answers if status >= "400"))
    parts.append(f"<details><summary>Refusals</summary>\n{refused}</details>\n</article>\n")
    return "".join(parts)


def _parameter(one: Part) -> tuple[str, str]:
    needed = "" if one.get("required") else " <small>optional</small>"
    said = one.get("description") or one["schema"].get("description", "")
    name = f"<code>{escape(one['name'])}</code> <small>{one['in']}</small>"
    return name, f"{kind_of(one['schema'])}{needed}<br>{_words(said)}"


def _answer(status: str, said: Part) -> tuple[str, str]:
    kinds = [kind_of(one["schema"]) for name, one in said.get("content", {}).items() if name == "application/json"]
    headers = ", ".join(f"<code>{name}</code>" for name in said.get("headers", ()))
    more = " · ".join([*kinds, *([headers] if headers else [])])
    return f"<code>{status}</code>", _words(said["description"]) + (f"<br><small>{more}</small>" if more else "")


def _table(title: str, rows: Iterable[tuple[str, str]]) -> str:
    lines = [f"<tr><th>{name}</th><td>{said}</td></tr>\n" for name, said in rows]
    if not lines:
        return ""
    heading = f"<h4>{title}</h4>\n" if title else ""
    return f'{heading}<div class="scroll"><table>\n{"".join(lines)}</table></div>\n'


def _curl(address: str, method: str, one: Part, base: str, needs_token: bool) -> str:
    query: list[str] = []
    for parameter in one["parameters"]:
        example = parameter.get("example")
        if parameter["in"] == "path":
            address = address.replace(f"{{{parameter['name']}}}", quote(example, safe=""))
        elif parameter["in"] == "query" and parameter.get("required"):
            query.append(f"{parameter['name']}={quote(example, safe='')}")
    url = base + address + ("?" + "&".join(query) if query else "")
    lines = ["curl" + ("" if method == "get" else f" -X {method.upper()}") + f" '{url}'"]
    if needs_token:
        lines.append('-H "Authorization: Bearer $ONETOOL_TOKEN"')
    if body := one.get("requestBody"):
        example = json.dumps(body["content"]["application/json"]["example"], indent=1 if method == "put" else None)
        lines += ["-H 'Content-Type: application/json'", f"-d '{example}'"]
    return " \\\n  ".join(lines)


def _words(text: str) -> str:
    """Text with `code` in it."""
    pieces = escape(" ".join(text.split())).split("`")
    return "".join(f"<code>{piece}</code>" if number % 2 else piece for number, piece in enumerate(pieces))
