"""Names that a person would choose, out of names that programs made."""

from helpers import each
from hypothesis import given
from hypothesis import strategies as st
from sources.bundles.openapi.documents import imported

from onetool.sources.bundles.import_names import (
    argument_name,
    bundle_slug,
    described,
    operation_slug,
    printable,
    secret_prefix,
    slug_of,
    version_label,
)
from onetool.sources.bundles.names import check_slug, check_version


@each(
    ("id", "slug"),
    [
        ("getPetById", "get-pet-by-id"), ("repos/get", "repos-get"), ("Pets_List", "pets-list"),
        ("reservedIPs_create", "reserved-ips-create"), ("listURLs", "list-urls"), ("VMsList", "vms-list"),
        ("getASet", "get-a-set"), ("getDNSs2", "get-dnss2"),
        ("getHTTPUrl", "get-http-url"), ("list-all", "list-all"),
        ("v1.users.get", "v1-users-get"), ("Größe ändern", "größe-ändern"), ("获取", "获取"),
    ],
)  # fmt: skip
def test_by_the_operations_id(id, slug):
    assert slug_of(id) == slug


@each(
    ("method", "path", "slug"),
    [
        ("get", "/pets/{petId}", "get-pet"), ("get", "/pets", "list-pets"), ("post", "/pets", "create-pet"),
        ("put", "/pets/{id}", "update-pet"), ("delete", "/users/{id}/keys/{k}", "delete-user-key"),
        ("post", "/api/v2/login", "post-login"), ("get", "/", "get-root"), ("get", "/status", "get-status"),
        ("get", "/categories/{id}", "get-category"), ("get", "/data/2.5/weather", "get-data-weather"),
        ("patch", "/addresses/{id}", "update-address"),
        ("get", "/v1/{city}", "get-city"), ("put", "/{owner}/{repo}/", "update-owner-repo"), ("get", "/v1", "get-v1"),
        ("get", "/v2/", "get-v2"), ("post", "/?x={y}", "post-y"),
    ],
)  # fmt: skip
def test_by_what_it_does(method, path, slug):
    assert operation_slug(None, method, path) == slug


def test_by_its_summary_where_the_path_names_nothing():
    path, summary = "/v1/{city}", "Get the weather forecast for a city."
    assert operation_slug(None, "get", path, summary=summary) == "get-weather-forecast-for-city"
    assert operation_slug("byCity", "get", path, summary=summary) == "by-city"
    assert operation_slug(None, "get", f"/weather{path}", summary=summary) == "get-weather"
    assert operation_slug(None, "get", "/", summary="Index") == "index"
    for nothing in (None, "", "The …", 5):
        assert operation_slug(None, "get", path, summary=nothing) == "get-city"
    found = imported({path: {"get": {"summary": "Weather"}, "put": {}}, "/v2/{city}": {"get": {}}})
    assert [slug for slug, _, _ in found.tools] == ["weather", "update-city", "get-city"]


@each(
    ("slug", "prefix"),
    [
        ("wetter-süd", "WETTER_SUD"),
        ("café-é", "CAFE_E"),
        ("pet-store", "PET_STORE"),
        ("Straße", "STRASSE"),
        ("宠物", "API_"),
    ],
)
def test_secrets_are_named_in_plain_letters(slug, prefix):
    assert secret_prefix(slug) == prefix


def test_what_frameworks_add_is_taken_off():
    assert operation_slug("read_item_items__item_id__get", "get", "/items/{item_id}") == "read-item"


def test_long_ones_keep_their_meaning():
    slug = slug_of("actions/set-github-actions-default-workflow-permissions-organization")
    assert slug == "actions-set-github-default-workflow-permissions-organization"
    assert slug_of("remove-all-custom-labels-from-self-hosted-runner-for-a-repository-x") == (
        "remove-all-custom-labels-from-self-hosted-runner-for-a-repo-x"
    )


@each(
    ("title", "slug"),
    [
        ("Swagger Petstore - OpenAPI 3.0", "petstore"),
        ("GitHub's official OpenAPI spec + Octokit extension", "github"),
        ("Stripe API", "stripe"), ("The Cat API", "cat"), ("OpenAPI", "example"), ("", "example"), ("宠物 API", "宠物"),
    ],
)  # fmt: skip
def test_of_bundles(title, slug):
    assert bundle_slug(title, "api.example.com") == slug


@each(
    ("text", "label"),
    [
        ("1.0.27-SNAPSHOT", "1.0.27-SNAPSHOT"),
        ("v1 (beta)", "v1-beta"),
        ("2024_01", "2024-01"),
        (None, "1"),
        ("../", "1"),
    ],
)
def test_versions(text, label):
    assert version_label(text) == label


@each(
    ("name", "argument"),
    [
        *(("filter[name]", "filter_name"), ("X-Trace", "X_Trace"), ("$top", "top"), ("petId", "petId")),
        *(("1st", "arg_1st"), ("created>", "created_gt"), ("created<=", "created_lte")),
    ],
)
def test_arguments(name, argument):
    assert argument_name(name) == argument


@given(st.text(max_size=200))
def test_anything_becomes_a_name(text):
    check_slug(bundle_slug(text))
    check_version(version_label(text))
    check_slug(operation_slug(text, "get", "/x"))
    check_slug(operation_slug(None, "get", f"/{text}"))
    assert argument_name(text).isidentifier()
    assert secret_prefix(text).isidentifier()
    assert printable(text, 50).isprintable()
    assert len(printable(text, 50)) <= 50


def test_no_two_tools_have_one_name():
    same = {"operationId": "same"}
    found = imported({"/a/{x}": {"get": same, "post": same}, "/b": {"get": same}, "/c": {"get": same}})
    assert [slug for slug, _, _ in found.tools] == ["same", "post-a", "get-b", "get-c"]
    found = imported(
        {"/user": {"get": {}}, "/users/{name}": {"get": {}}, "/user/{id}": {"get": {}, "put": {}, "patch": {}}}
    )
    assert [slug for slug, _, _ in found.tools] == [
        "get-user", "get-user-by-name", "get-user-by-id", "replace-user", "update-user",
    ]  # fmt: skip


def test_texts():
    assert described("Get a pet.", "Get a pet.\n\nMuch more.") == "Get a pet."
    assert described("Get a pet", "By its id.\n\nMore") == "Get a pet. By its id."
    assert described(None, "# Title\n\n<p>Some <b>bold</b></p> words") == "Some bold"
    assert printable("a\x00b\u202ec\nd", 50) == "a b c d"
    assert len(described("x" * 500, "y " * 5000)) <= 600


def test_tags_and_deprecation():
    found = imported({"/x": {"get": {"tags": ["pets", "pets", 3, "a" * 100], "deprecated": True}}})
    assert found.tools[0][2]["tags"][0] == "pets"
    assert found.tools[0][2]["tags"][-1] == "deprecated"
    assert all(len(tag) <= 64 for tag in found.tools[0][2]["tags"])
