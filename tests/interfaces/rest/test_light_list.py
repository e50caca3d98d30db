"""Lists that weigh little: `fields`, gzip, and an ETag."""

import gzip
import json

import pytest
from helpers import each
from interfaces.rest.served import problem

LISTS = ["/tools/bundles", "/tools/tools", "/tools/tools/search"]
ROWS, MAX_BYTES = 2_000, 60_000


@pytest.fixture(scope="module")
def some(api):
    bundle = api.bundle()
    for number in range(30):
        api.tool(bundle, slug=f"row{number}", description="some words " * 20)
    return bundle.rpartition("/")[2]


def test_fields_picks_keys_of_tools(api, some):
    page = api.get(f"/tools/tools?bundleIDs={some}&fields=slug,version").json()
    assert page["tools"][0] == {"slug": "row0", "version": "1"}
    assert api.get(f"/tools/tools?bundleIDs={some}&fields=slug&fields=version").json() == page
    found = api.get("/tools/tools/search?q=row1&fields=id").json()["tools"]
    assert found
    assert all(list(one) == ["id"] for one in found)


def test_fields_picks_keys_of_bundles(api, some):
    assert api.get(f"/tools/bundles?bundleIDs={some}&fields=slug").json()["bundles"] == [{"slug": "mine"}]


@pytest.mark.parametrize("path", LISTS)
def test_an_unknown_field_is_told_the_nearest(api, path):
    found = problem(api.get(f"{path}?fields=slug,displayNam"), 400, "bad_parameter")
    assert (found["in"], found["pointer"]) == ("query", "/fields")
    assert "did you mean displayName?" in found["detail"]
    assert "slug" in problem(api.get(f"{path}?fields="), 400, "bad_parameter")["detail"]


def test_pages_go_on_with_the_same_fields(api, some):
    first = api.get(f"/tools/tools?bundleIDs={some}&fields=slug&recommendedPageSize=20").json()
    token = first["nextPageToken"]
    rest = api.get(f"/tools/tools?bundleIDs={some}&fields=slug&pageToken={token}").json()
    assert len(first["tools"]) + len(rest["tools"]) == 30


@each(
    ("accepted", "packed"),
    [("gzip", True), ("br, gzip;q=0.5", True), ("*", True), ("identity", False), ("gzip;q=0", False), ("br", False),
     ("*;q=0, gzip", True), ("gzip;q=x", False), ("", False)],
)  # fmt: skip
def test_gzip_for_those_who_take_it(api, some, accepted, packed):
    path = f"/tools/tools?bundleIDs={some}"
    with api.client.stream("GET", path, headers={"Accept-Encoding": accepted}) as reply:
        raw = b"".join(reply.iter_raw())
    assert (reply.headers.get("content-encoding") == "gzip") is packed
    assert reply.headers["vary"] == "accept-encoding"
    assert len(json.loads(gzip.decompress(raw) if packed else raw)["tools"]) == 30
    assert (len(raw) < 5_000) is packed


def test_other_answers_are_not_packed(api, some):
    one = api.get(f"/tools/bundles/{some}/tools/row1/version/1", headers={"Accept-Encoding": "gzip"})
    assert "content-encoding" not in one.headers
    called = api.call("large", {"size": 10_000}, headers={"Accept-Encoding": "gzip"})
    assert "content-encoding" not in called.headers


@pytest.mark.parametrize("path", LISTS)
def test_a_list_that_is_known_is_not_sent_again(api, some, path):
    tag = api.get(path).headers["etag"]
    for known in (tag, tag.removeprefix("W/"), f'"other", {tag}', "*"):
        again = api.get(path, headers={"If-None-Match": known})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert api.get(path, headers={"If-None-Match": '"other"'}).status_code == 200
    assert api.get(f"{path}?fields=slug").headers["etag"] != tag


def test_a_change_has_another_etag(api):
    bundle = api.bundle()
    path = f"/tools/tools?bundleIDs={bundle.rpartition('/')[2]}"
    before = api.get(path).headers["etag"]
    api.tool(bundle)
    after = api.get(path, headers={"If-None-Match": before})
    assert after.status_code == 200
    assert after.headers["etag"] != before


@pytest.mark.long
def test_thousands_of_rows_weigh_little(start, tmp_path):
    _write_rows(tmp_path / "bundles")
    api = start(real=tmp_path)
    fields = "fields=slug,version,displayName,isEnabled"
    rows, size, token = 0, 0, ""
    while token is not None:
        path = f"/tools/tools?{fields}&recommendedPageSize=1000{f'&pageToken={token}' if token else ''}"
        with api.client.stream("GET", path, headers={"Accept-Encoding": "gzip"}) as reply:
            raw = b"".join(reply.iter_raw())
        page = json.loads(gzip.decompress(raw))
        rows, size, token = rows + len(page["tools"]), size + len(raw), page["nextPageToken"]
    assert rows > ROWS
    assert size < MAX_BYTES


def _write_rows(folder):
    """Files as a store would write them."""
    (folder / "big" / "tools").mkdir(parents=True)
    bundle = {"id": "01890a5d-ac96-774b-bcce-b302099a8057", "slug": "big", "displayName": "", "description": ""}
    (folder / "big" / "bundle.json").write_text(json.dumps(bundle))
    for number in range(ROWS):
        slug = f"tool-{number}"
        tool = {
            "slug": slug,
            "version": "1",
            "type": "script",
            "scriptImpl": {"code": "1"},
            "displayName": f"Tool {number}",
        }
        (folder / "big" / "tools" / f"{slug}@1.json").write_text(json.dumps(tool))
