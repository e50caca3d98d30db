"""Lists in pages, and what may stand behind the `?`."""

import base64

import pytest
from helpers import each
from interfaces.rest.served import BUILT_IN, problem


@pytest.fixture(scope="module")
def many(api):
    """Five bundles, one of them switched off, and five tools in the first."""
    paths = [api.bundle(isEnabled=number != 3) for number in range(5)]
    for number in range(5):
        api.tool(paths[0], slug=f"find{number}", tags=["all", "even" if number % 2 == 0 else "odd"])
    return [path.rpartition("/")[2] for path in paths]


def pages(api, path, name, **query):
    """All pages of a list, each as the slugs or ids on it."""
    token, found = None, []
    while True:
        reply = api.get(path, params={**query, **({"pageToken": token} if token else {})})
        assert reply.status_code == 200, reply.text
        page = reply.json()
        found.append([one["id"] if name == "bundles" else one["slug"] for one in page[name]])
        token = page["nextPageToken"]
        if token is None:
            return found


def test_bundles_by_id_in_pages(api, many):
    ids = ",".join(many)
    assert pages(api, "/tools/bundles", "bundles", bundleIDs=ids, pageSize=2) == [many[:2], [many[2], many[4]]]
    everything = pages(api, "/tools/bundles", "bundles", bundleIDs=ids, includeDisabled="true", pageSize=2)
    assert everything == [many[:2], many[2:4], many[4:]]
    both = api.get(f"/tools/bundles?bundleIDs={many[0]}&bundleIDs={many[1]}").json()
    assert [one["id"] for one in both["bundles"]] == many[:2]
    assert both["nextPageToken"] is None


def test_tools_by_tag_and_bundle(api, many):
    where = {"bundleIDs": many[0], "recommendedPageSize": 2}
    assert pages(api, "/tools/tools", "tools", **where) == [["find0", "find1"], ["find2", "find3"], ["find4"]]
    for tags in ("tags=none&tags=even", "tags=none,even", "tags=none%2Ceven", "tags=even&tags=none,"):
        page = api.get(f"/tools/tools?bundleIDs={many[0]}&{tags}").json()
        assert [one["slug"] for one in page["tools"]] == ["find0", "find2", "find4"]


def test_search_in_pages_of_any_size(api, many):
    first = api.get("/tools/tools/search?q=find&pageSize=2").json()
    assert [one["slug"] for one in first["tools"]] == ["find0", "find1"]
    rest = api.get(
        "/tools/tools/search", params={"q": "find", "pageSize": 9, "pageToken": first["nextPageToken"]}
    ).json()
    assert [one["slug"] for one in rest["tools"]] == ["find2", "find3", "find4"]


def test_a_page_token_is_good_for_its_own_query_alone(api, many):
    token = api.get("/tools/tools?tags=all,odd&recommendedPageSize=1").json()["nextPageToken"]
    good = f"/tools/tools?tags=odd&tags=all&pageToken={token}"
    assert api.get(good).status_code == 200  # the same tags
    for other in (
        f"/tools/tools?tags=all&pageToken={token}",
        f"/tools/tools?pageToken={token}",
        f"/tools/tools?tags=all,odd&includeDisabled=true&pageToken={token}",
        f"/tools/bundles?pageToken={token}",
        f"/tools/tools/search?q=find&pageToken={token}",
    ):
        found = problem(api.get(other), 400, "bad_page_token")
        assert (found["in"], found["pointer"]) == ("query", "/pageToken")
    assert token not in api.get(good).text


def test_a_token_that_is_not_ours_is_refused(api, many):
    list_ = "/tools/tools?recommendedPageSize=1"
    token = api.get(list_).json()["nextPageToken"]
    raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    others = [token[:-1], token[1:], token + "A", token + "=", token[::-1], "x", "", "é", "A" * 5000, "-_-", " "]
    others += [base64.urlsafe_b64encode(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]).decode().rstrip("=")
               for at in range(len(raw))]  # fmt: skip
    others += [token[:at] + chr(ord(token[at]) ^ 1) + token[at + 1 :] for at in range(len(token))]
    for other in others:
        problem(api.get("/tools/tools", params={"recommendedPageSize": 1, "pageToken": other}), 400, "bad_page_token")


NO_SIZES = ["0", "-1", "+1", "1.0", "", "x", "01", "1e2", "٣"]
TOO_MANY = ["1001", "12345678901", "9" * 5000]


@each("size", [*NO_SIZES, *TOO_MANY])
@each("path", ["bundles?", "tools/search?q=a&"])
def test_a_page_has_1_to_1000(api, path, size):
    found = problem(api.get(f"/tools/{path}pageSize={size}"), 400, "bad_parameter")
    assert (found["in"], found["pointer"]) == ("query", "/pageSize")
    assert "1 to 1000" in found["detail"] or "expected a whole number" in found["detail"]


@each("size", NO_SIZES)
def test_a_recommendation_is_a_number(api, size):
    found = problem(api.get(f"/tools/tools?recommendedPageSize={size}"), 400, "bad_parameter")
    assert (found["in"], found["pointer"]) == ("query", "/recommendedPageSize")


@pytest.mark.parametrize("size", TOO_MANY)
def test_a_recommendation_of_more_than_the_most_is_the_most(api, size):
    answer = api.get(f"/tools/tools?recommendedPageSize={size}")
    assert answer.status_code == 200
    assert answer.json()["tools"] == api.get("/tools/tools?recommendedPageSize=1000").json()["tools"] != []


def test_sizes_that_are_right(api):
    for size in ("1", "1000"):
        assert api.get(f"/tools/bundles?pageSize={size}").status_code == 200


@each(("text", "status"), [("true", 200), ("1", 200), ("false", 200), ("0", 200), ("True", 400),
                                              ("yes", 400), ("", 400), ("null", 400)])  # fmt: skip
def test_true_and_false(api, text, status):
    assert api.get(f"/tools/bundles?includeDisabled={text}").status_code == status


@each(
    ("query", "code", "pointer"),
    [
        ("bundles?pagesize=1", "unknown_parameter", "/pagesize"),
        ("bundles?x=1", "unknown_parameter", "/x"),
        ("bundles?a/b~=1", "unknown_parameter", "/a~1b~0"),
        ("bundles?pageSize=1&pageSize=1", "bad_parameter", "/pageSize"),
        ("bundles?bundleIDs=x", "bad_parameter", "/bundleIDs"),
        ("bundles?bundleIDs=", "bad_parameter", "/bundleIDs"),
        (f"bundles?bundleIDs={BUILT_IN},", "bad_parameter", "/bundleIDs"),
        ("tools?tags=%zz", "bad_parameter", "/tags"),
        ("tools?tags=%ff", "bad_parameter", "/tags"),
        ("tools?tags=" + ",".join(map(str, range(1001))), "bad_parameter", "/tags"),
        ("tools/search?q=" + "x" * 1001, "bad_parameter", "/q"),
        (f"bundles/{BUILT_IN}?pretty=1", "unknown_parameter", "/pretty"),
    ],
)
def test_what_stands_behind_the_question_mark_is_known(api, query, code, pointer):
    found = problem(api.raw("GET", f"/tools/{query}"), 400, code)
    assert (found["in"], found["pointer"]) == ("query", pointer)


def test_a_mistyped_parameter_is_told_the_right_one(api):
    assert "did you mean includeDisabled?" in api.get("/tools/bundles?includeDisable=1").json()["detail"]
    assert "recommendedPageSize" in api.get("/tools/tools?pageSize=1").json()["detail"]


def test_a_query_may_be_spelled_as_forms_do(api):
    assert api.get("/tools/tools/search?q=no+such%20thing&&").json() == {"tools": [], "nextPageToken": None}
