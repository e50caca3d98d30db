"""Small OpenAPI documents, and the one tool that comes of one."""

import msgspec

from onetool.core.schema import CompiledSchema
from onetool.http.template import RequestTemplate
from onetool.sources.bundles.model import http_of
from onetool.sources.bundles.openapi import OpenApiImport
from onetool.sources.bundles.validation import read_tool

HOST = "https://api.example.com/v1"


def from_openapi(data, stored=None, **options):
    return OpenApiImport(data, **options).convert(stored or {})


def document(paths, version="3.0.3", **more):
    root = {"openapi": version, "info": {"title": "Shop", "version": "1"}, "servers": [{"url": HOST}], "paths": paths}
    return msgspec.json.encode(root | more)


def imported(paths, document_url=None, base_url=None, slug=None, token=False, **more):
    return from_openapi(document(paths, **more), document_url=document_url, base_url=base_url, slug=slug, token=token)


def one(operation, method="get", path="/things", **more):
    """The only tool of a document with one operation."""
    found = imported({path: {method: operation}}, **more)
    assert found.skipped == []
    ((_, _, tool),) = found.tools
    CompiledSchema(tool["argSchema"], closed=True)
    CompiledSchema(tool["outputSchema"])
    return tool


def skipped(operation, method="get", path="/things", **more):
    """Why a document's only operation is not a tool."""
    found = imported({path: {method: operation}}, **more)
    assert found.tools == []
    ((_, why),) = found.skipped
    return why


def sent(tool, secret=lambda name: f"<{name}>", **args):
    """The request that a tool would send."""
    assert CompiledSchema(tool["argSchema"], closed=True).check(args) == []
    content = read_tool(tool, "t", "1")
    return RequestTemplate(http_of(content).request, content.arg_schema).fill(args, secret)


def parameters(*given):
    return {"parameters": list(given)}


def parameter(name, place="query", schema=None, **more):
    return {"name": name, "in": place, "schema": schema or {"type": "string"}, **more}


def body(schema, media="application/json", required=True, **more):
    return {"requestBody": {"required": required, "content": {media: {"schema": schema, **more}}}}


def answer(schema, media="application/json", code="200"):
    return {"responses": {code: {"description": "", "content": {media: {"schema": schema}}}}}
