"""The page at /docs: the REST API for people, as one HTML page without scripts, made from the OpenAPI document."""

import json
from collections.abc import Iterable, Iterator
from html import escape
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from onetool.interfaces.asgi import SECURITY_HEADERS, Asgi, Receive, Scope, Send, respond
from onetool.interfaces.rest.openapi import openapi_document
from onetool.interfaces.rest.openapi_parts import SCHEMA_PREFIX

if TYPE_CHECKING:
    from onetool.app import App


STYLE = """
:root { color-scheme: light dark; --ink: #1d1f23; --faint: #5d6068; --paper: #fcfcfa; --soft: #f3f2ed; --line: #dddbd3;
  --get: #1a6b4a; --post: #1f5fa8; --put: #8a5a00; --patch: #6b3fa0; --delete: #a8322a }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e4de; --faint: #a2a4ab; --paper: #17181b; --soft: #202227; --line: #383b42;
    --get: #5cc79a; --post: #79b0ee; --put: #e0b050; --patch: #bf9bea; --delete: #ee8a82 }
}
* { box-sizing: border-box }
html { scroll-padding-top: 1rem; scroll-behavior: smooth }
@media (prefers-reduced-motion: reduce) { html { scroll-behavior: auto } }
body { font: 16px/1.6 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 0;
  display: grid; grid-template-columns: 17rem minmax(0, 1fr) }
nav { position: sticky; top: 0; height: 100vh; overflow-y: auto; padding: 1.75rem 1rem 2rem 1.5rem;
  border-right: 1px solid var(--line); font-size: .88rem }
nav h2 { font-size: .75rem; letter-spacing: .06em; text-transform: uppercase; color: var(--faint);
  margin: 1.4rem 0 .3rem }
nav ul { list-style: none; margin: 0; padding: 0 } nav li { margin: .1rem 0; break-inside: avoid }
nav h2 a { margin-left: -.4rem }
nav a { display: block; padding: .12rem .4rem; border-radius: 5px; color: inherit; text-decoration: none }
nav a:hover, nav a:focus-visible { background: var(--soft) }
main { padding: 2.25rem clamp(1.1rem, 4vw, 3.5rem) 6rem; max-width: 62rem }
h1 { font-size: 1.75rem; margin: 0 0 .75rem } h2 { font-size: 1.3rem; margin: 3rem 0 .5rem }
h3 { font-size: 1.05rem; margin: 0 }
h4 { font-size: .82rem; color: var(--faint); margin: 1.1rem 0 .3rem; font-weight: 600 }
article { border: 1px solid var(--line); border-radius: 10px; margin: 1rem 0; padding: 1rem 1.2rem }
article p { margin: .5rem 0 }
.address { font: 14px/1.5 ui-monospace, monospace; overflow-wrap: anywhere; margin: .15rem 0 .4rem }
.method { font: 700 12px/1 ui-monospace, monospace; letter-spacing: .03em; border: 1px solid; border-radius: 5px;
  padding: .18rem .42rem; margin-right: .5rem }
.get { color: var(--get) } .post { color: var(--post) } .put { color: var(--put) } .patch { color: var(--patch) }
.delete { color: var(--delete) }
table { border-collapse: collapse; width: 100%; font-size: .9rem }
td, th { text-align: left; vertical-align: top; padding: .35rem .7rem .35rem 0; border-top: 1px solid var(--line) }
tr:first-child > * { border-top: 0 } th { font-weight: 400; width: 13.5rem }
.scroll { overflow-x: auto }
pre { background: var(--soft); border: 1px solid var(--line); border-radius: 8px; padding: .7rem .9rem; margin: .4rem 0;
  font: 13px/1.55 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere }
code { font-family: ui-monospace, monospace; font-size: .92em }
summary { cursor: pointer; color: var(--faint); font-size: .9rem; margin-top: .7rem }
a { color: var(--post) } small { color: var(--faint) }
a:focus-visible, summary:focus-visible { outline: 2px solid var(--post); outline-offset: 2px }
@media (max-width: 54rem) { body { display: block } nav { position: static; height: auto; border: 0;
  border-bottom: 1px solid var(--line); padding: 1.2rem } nav ul { columns: 2 }
  th { width: 9.5rem; overflow-wrap: anywhere } }
@media print { nav { display: none } body { display: block } article { break-inside: avoid } }
"""


# Schemas as tables


Part = dict[str, Any]

_BOUNDS = (
    ("minLength", "at least {} characters"),
    ("maxLength", "at most {} characters"),
    ("minimum", "from {}"),
    ("maximum", "to {}"),
    ("maxItems", "at most {}"),
)


def component_html(name: str, schema: Part) -> str:
    said = f"<p>{escape(schema['description'])}</p>\n" if "description" in schema else ""
    return (
        f'<article id="schema-{escape(name)}">\n<h3>{escape(name)}</h3>\n{said}{_properties_table(schema)}</article>\n'
    )


def type_html(schema: Part) -> str:
    """The type of a schema in one line of HTML, with links to named schemas."""
    if "$ref" in schema:
        name = escape(schema["$ref"].removeprefix(SCHEMA_PREFIX))
        return f'<a href="#schema-{name}">{name}</a>'
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " or ".join(type_html(one) for one in schema[key])
    if "const" in schema:
        return f"<code>{escape(json.dumps(schema['const']))}</code>"
    if "enum" in schema:
        return " · ".join(f"<code>{escape(json.dumps(one))}</code>" for one in schema["enum"])
    kind = schema.get("type", "any JSON")
    if kind == "array":
        return f"list of {type_html(schema['items'])}"
    words = " or ".join(kind) if isinstance(kind, list) else str(kind)
    bounds = [text.format(f"{schema[key]:,}") for key, text in _BOUNDS if key in schema]
    return escape(", ".join([words, *bounds]))


def _properties_table(schema: Part) -> str:
    if "properties" not in schema:
        return f"<p>{type_html(schema)}</p>\n"
    rows = [_property_row(key, one, key in schema.get("required", ())) for key, one in schema["properties"].items()]
    return f'<div class="scroll"><table>\n{"".join(rows)}</table></div>\n'


def _property_row(key: str, schema: Part, needed: bool) -> str:
    marks = [mark for mark, holds in (("required", needed), ("read-only", schema.get("readOnly"))) if holds]
    if schema.get("default") not in (None, "", [], {}):
        marks.append(f"default {json.dumps(schema['default'])}")
    told = f"<br>{escape(schema['description'])}" if "description" in schema else ""
    small = f" <small>{escape(', '.join(marks))}</small>" if marks else ""
    return f"<tr><th><code>{escape(key)}</code></th><td>{type_html(schema)}{small}{told}</td></tr>\n"


# The page


def docs(app: "App") -> Asgi:
    """The route /docs. Examples use the Host header of the request."""

    async def show(scope: Scope, _receive: Receive, send: Send) -> None:
        host = next((value for name, value in scope["headers"] if name == b"host"), b"127.0.0.1:8765")
        root = scope.get("root_path", "")
        base = f"{scope.get('scheme', 'http')}://{host.decode('latin-1')}{quote(root)}"
        text = docs_page(openapi_document(app, root), base)
        await respond(send, 200, text.encode(), b"text/html; charset=utf-8", SECURITY_HEADERS)

    return show


def docs_page(document: Part, base: str) -> str:
    operations = list(_operations(document))
    root = document["servers"][0]["url"].rstrip("/")
    title = f"{document['info']['title']} REST API"
    return "".join(
        [
            '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n",
            _nav(document, operations),
            f"<main>\n<h1>{escape(title)}</h1>\n",
            f"<p><small>Version {escape(document['info']['version'])} · ",
            f'<a href="{escape(root)}/openapi.json">openapi.json</a></small></p>\n',
            *(f"<p>{_text_html(text)}</p>\n" for text in document["info"]["description"].split("\n\n")),
            *_groups(document, operations, base),
            '<h2 id="schemas">Shapes</h2>\n',
            *(component_html(name, document["components"]["schemas"][name]) for name in _schema_names(document)),
            "</main>\n</html>\n",
        ]
    )


def _operations(document: Part) -> Iterator[tuple[str, str, Part]]:
    """All operations: path, method, and the operation with the parameters of its path."""
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
    lines += [f'<li><a href="#schema-{name}">{name}</a></li>\n' for name in map(escape, _schema_names(document))]
    return "".join([*lines, "</ul>\n</nav>\n"])


def _schema_names(document: Part) -> list[str]:
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
        f"<p>{_text_html(one['description'])}</p>\n" if "description" in one else "",
        _table("Parameters", map(_parameter, one["parameters"])),
    ]
    if body:
        schema = body["content"]["application/json"]["schema"]
        needed = "" if body["required"] else " (may be left out)"
        parts.append(f"<h4>Body</h4>\n<p>{type_html(schema)}{needed}</p>\n")
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
    return name, f"{type_html(one['schema'])}{needed}<br>{_text_html(said)}"


def _answer(status: str, said: Part) -> tuple[str, str]:
    kinds = [type_html(one["schema"]) for name, one in said.get("content", {}).items() if name == "application/json"]
    headers = ", ".join(f"<code>{name}</code>" for name in said.get("headers", ()))
    more = " · ".join([*kinds, *([headers] if headers else [])])
    return f"<code>{status}</code>", _text_html(said["description"]) + (f"<br><small>{more}</small>" if more else "")


def _table(title: str, rows: Iterable[tuple[str, str]]) -> str:
    lines = [f"<tr><th>{name}</th><td>{said}</td></tr>\n" for name, said in rows]
    if not lines:
        return ""
    heading = f"<h4>{title}</h4>\n" if title else ""
    return f'{heading}<div class="scroll"><table>\n{"".join(lines)}</table></div>\n'


# The only parameter of a path without an example is the name of a tool: which arguments fit depends on it, and programs
# that make up requests would combine the example with any arguments.
FIRST_TOOL = "time.now"


def _curl(address: str, method: str, one: Part, base: str, needs_token: bool) -> str:
    query: list[str] = []
    for parameter in one["parameters"]:
        example = parameter.get("example", FIRST_TOOL)
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


def _text_html(text: str) -> str:
    """Text as HTML, with `…` as code."""
    pieces = escape(" ".join(text.split())).split("`")
    return "".join(f"<code>{piece}</code>" if number % 2 else piece for number, piece in enumerate(pieces))
