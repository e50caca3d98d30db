"""GitHub's document: 13 MB, about 1,200 operations. `make openapi` installs it where it can; else this is skipped."""

import re
from pathlib import Path

import msgspec
import npm
import pytest
from http_harness import Harness, allowed
from sources.bundles.openapi.documents import from_openapi
from upstream import Reply, Upstream

from onetool.core.schema import CompiledSchema
from onetool.http.definition import Request
from onetool.http.files import file_preview
from onetool.http.template import RequestTemplate
from onetool.sources.bundles.names import check_slug

FOLDER = Path(__file__).parents[4] / ".node-openapi"
WANTED = Path(__file__).parent / "npm"
FILE = FOLDER / "node_modules" / "@octokit" / "openapi" / "generated" / "api.github.com.json"

pytestmark = pytest.mark.skipif(
    not npm.is_installed(WANTED, FOLDER), reason="GitHub's document is not there; `make openapi` installs it"
)


@pytest.fixture(scope="module")
def github():
    text = FILE.read_text(encoding="utf-8")
    return from_openapi(text, token=True)


def test_every_operation_is_a_tool(github):
    assert len(github.tools) > 1_100
    assert github.skipped == []
    assert github.bundle["slug"] == "github"
    assert github.hosts == ["api.github.com", "uploads.github.com"]
    assert github.secrets == ["GITHUB_TOKEN"]


def test_names_a_person_would_choose(github):
    slugs = [slug for slug, _, _ in github.tools]
    assert len(set(slugs)) == len(slugs)
    assert all(check_slug(slug) and not re.search(r"-\d+$|--", slug) for slug in slugs)
    assert {"issues-create", "repos-get", "pulls-list", "users-get-by-username", "git-delete-ref"} <= set(slugs)


def test_every_tool_can_be_called(github):
    """With what its schema asks for, and with all that it takes."""
    unmet = []
    for slug, _, tool in github.tools:
        schema = tool["argSchema"]
        fits = CompiledSchema(schema, closed=True)
        template = RequestTemplate(msgspec.convert(tool["httpImpl"]["request"], Request), schema)
        for names in (schema.get("required", ()), schema["properties"]):
            args = {name: sample(schema["properties"][name], schema) for name in names}
            if fits.check(args):
                unmet.append(slug)
            args |= {name: file_preview(args[name]) for name in template.files & args.keys()}
            request = template.fill(args, lambda name: "s3cret")
            assert request.url.host in ("api.github.com", "uploads.github.com")
            assert "$" not in request.url.target
    # A few want what no sample of ours has: a pattern, exactly one of several forms.
    assert len(set(unmet)) < 40, unmet


def test_one_of_them_is(github):
    tool = next(tool for slug, _, tool in github.tools if slug == "issues-create")
    with Upstream(
        Reply(201, {"Content-Type": "application/json"}, b'{"number": 5, "title": "x", "user": null}')
    ) as upstream:
        impl = tool["httpImpl"]
        request = {**impl["request"]}
        request["urlTemplate"] = request["urlTemplate"].replace("https://api.github.com", upstream.url)
        harness = Harness(
            {**impl, "request": request}, tool["argSchema"], secrets={"GITHUB_TOKEN": "t0ken"}, hosts=allowed(upstream)
        )
        value = harness(owner="o", repo="r", title="x")
        assert value["number"] == 5
        assert CompiledSchema(tool["outputSchema"]).check(value) == []
        assert upstream.seen[0].target == "/repos/o/r/issues"
        assert upstream.seen[0].headers["authorization"] == "Bearer t0ken"
        assert upstream.seen[0].body == b'{"title":"x"}'


def sample(schema, root):
    """Some value that fits."""
    if not isinstance(schema, dict):
        return None
    if "$ref" in schema:
        return sample(root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root)
    if schema.get("enum"):
        return schema["enum"][0]
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return sample(schema[word][0], root)
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object":
        names = schema.get("required", ())
        return {name: sample(schema.get("properties", {}).get(name, {}), root) for name in names}
    if kind == "array":
        return [sample(schema.get("items", {}), root)] * max(1, schema.get("minItems", 1))
    number = max(1, schema.get("minimum", 1))
    return {"integer": number, "number": number, "boolean": True, "null": None}.get(
        kind, "x" * schema.get("minLength", 1)
    )
