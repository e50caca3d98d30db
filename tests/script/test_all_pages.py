"""`ot.all`: the items of all pages as one list, by what a tool's arguments and results are called."""

import pytest
from helpers import each

INTEGER, TEXT = {"type": "integer"}, {"type": "string"}
ITEMS = list(range(1, 26))
SIZE = 10


def numbered(page=1, tier=None):
    first = (page - 1) * SIZE
    return {"customers": ITEMS[first : first + SIZE], "page": page, "pages": 3}


def from_zero(page=0):
    return {"items": ITEMS[page * SIZE : (page + 1) * SIZE], "page": page, "total_pages": 3}


def by_offset(offset=0, limit=SIZE):
    return {"rows": ITEMS[offset : offset + limit], "offset": offset, "limit": limit, "total": 25}


def by_cursor(cursor=None):
    first = int(cursor or 0)
    following = str(first + SIZE) if first + SIZE < 25 else None
    return {"data": ITEMS[first : first + SIZE], "meta": {"next_cursor": following}}


def by_token(page_token=""):
    first = int(page_token or 0)
    more = {"nextPageToken": str(first + SIZE)} if first + SIZE < 25 else {}
    return {"items": ITEMS[first : first + SIZE], "etags": "x", **more}


def nested(cursor=None):
    found = by_cursor(cursor)
    return {"response": {"items": found["data"], "next_cursor": found["meta"]["next_cursor"]}}


def with_flag(skip=0):
    return {"items": ITEMS[skip : skip + SIZE], "has_more": skip + SIZE < 25}


def bare(page=1):
    return ITEMS[(page - 1) * SIZE : page * SIZE]


def page_of(page):
    return {"results": ITEMS[(page - 1) * SIZE : page * SIZE]}


def by_address(page=1):
    """As Django REST answers. There is no page after the last one."""
    assert page <= 3
    return {"count": 25, "next": f"https://x.example/?page={page + 1}" if page < 3 else None, **page_of(page)}


def next_address(page_number=1):
    return {"next_page": f"https://x.example/?p={page_number + 1}" if page_number < 3 else "", **page_of(page_number)}


def spring(page=0):
    """As Spring answers: it counts from zero, which its schema doesn't say."""
    return {"content": ITEMS[page * SIZE : (page + 1) * SIZE], "number": page, "last": page == 2}


def since(since_id=0):
    found = ITEMS[since_id : since_id + SIZE]
    return {"items": found, "next_since_id": since_id + len(found)}


def notion(start_cursor=None):
    found = by_cursor(start_cursor)
    return {"results": found["data"], "next_cursor": found["meta"]["next_cursor"], "has_more": start_cursor != "20"}


def single():
    return {"items": ITEMS, "total": 25}


TOOLS = {
    "numbered": (numbered, {"page": INTEGER, "tier": TEXT}, 3),
    "from_zero": (from_zero, {"page": {"type": "integer", "default": 0}}, 3),
    "by_offset": (by_offset, {"offset": INTEGER, "limit": INTEGER}, 3),
    "by_cursor": (by_cursor, {"cursor": TEXT}, 3),
    "by_token": (by_token, {"page_token": TEXT}, 3),
    "nested": (nested, {"cursor": TEXT}, 3),
    "with_flag": (with_flag, {"skip": INTEGER}, 3),
    "bare": (bare, {"page": INTEGER}, 4),  # the last page is empty
    "by_address": (by_address, {"page": INTEGER}, 3),
    "next_address": (next_address, {"page_number": INTEGER}, 3),
    "spring": (spring, {"page": INTEGER}, 3),
    "since": (since, {"since_id": INTEGER}, 4),  # the last page is empty
    "notion": (notion, {"start_cursor": TEXT}, 3),
    "single": (single, {}, 1),
}


@pytest.fixture(scope="module")
def crm(scripts_for_module):
    scripts = scripts_for_module
    for name, (handler, properties, _) in TOOLS.items():
        scripts.tool(f"crm.{name}", handler, **properties)
    scripts.tool("odd.two", lambda page=1: {"a": [page], "b": [2], "pages": 2}, page=INTEGER)
    scripts.tool("odd.none", lambda: {"a": 1})
    scripts.tool("odd.hidden", lambda query="": {"items": [1], "nextPageToken": "x"}, query=TEXT)
    scripts.tool("odd.address", lambda cursor="": {"items": [1], "next": "https://x.example/2"}, cursor=TEXT)
    scripts.tool("odd.link", lambda query="": {"items": [1], "@odata.nextLink": "https://x.example/2"}, query=TEXT)
    scripts.tool("odd.list", lambda cursor="": [1, 2], cursor=TEXT)
    scripts.tool("odd.same", lambda page=1: [1, 2], page=INTEGER)
    scripts.tool("odd.endless", lambda page=1: [page] * 6000, page=INTEGER)
    scripts.tool("odd.large", lambda page=1: [f"{page}" + "x" * 9_000_000], page=INTEGER)
    scripts.tool("odd.fails", lambda page=1: [1] if page < 2 else 1 / 0, page=INTEGER)
    scripts.tool("odd.title", lambda page: {"items": [page]}, "page", page=TEXT)
    return scripts


@each("name", TOOLS)
def test_all_items_come_as_one_list_and_each_page_is_a_call(crm, name):
    result = crm.run(f"ot.all(crm.{name})")
    assert (result.data, result.meta["calls"]) == (ITEMS, TOOLS[name][2])


@each(
    "code",
    [
        "ot.all('crm.numbered', tier='gold')",
        "f = crm.numbered\not.all(f)",
        "def every(tool, **args):\n    return ot.all(tool, **args)\nevery(crm.numbered, tier='x')",
        "ot.all(crm.numbered, args={'tier': 'x'})",
        "await ot.all(crm.numbered)",
        "import asyncio\n(await asyncio.gather(ot.all(crm.by_cursor), ot.all(crm.numbered)))[1]",
        "[x for page in [ot.all(crm.by_offset, offset=0)] for x in page]",
    ],
)
def test_ways_to_say_it(crm, code):
    assert crm.value(code) == ITEMS


def test_a_limit_is_for_items_and_ends_the_calls(crm):
    result = crm.run("ot.all(crm.by_offset, limit=12)")
    assert (result.data, result.meta["calls"]) == (ITEMS[:12], 2)
    assert "more than 10,000 items: pass limit=…" in crm.error("ot.all(odd.endless)").message
    assert len(crm.value("ot.all(odd.endless, limit=12000)")) == 12_000


def test_it_begins_where_it_is_told(crm):
    assert crm.value("ot.all(crm.numbered, page=2)") == ITEMS[10:]
    assert crm.value("ot.all(crm.by_offset, offset=5)") == ITEMS[5:]


def test_the_list_that_is_meant_is_named(crm):
    assert "its lists are a, b" in crm.error("ot.all(odd.two)").message
    assert crm.value("ot.all(odd.two, key='a')") == [1, 2]
    assert "there is no list 'c': its lists are a, b" in crm.error("ot.all(odd.two, key='c')").message


@each(
    ("code", "words"),
    [
        ("ot.all(odd.none)", "There is no list of items in the result of odd.none: {'a': 1}"),
        (
            "ot.all(odd.hidden)",
            "no cursor, page or offset, and its result has 1 items and {'nextpagetoken'",
        ),
        ("ot.all(odd.address)", "it takes cursor, and its result has 1 items and {'next': 'https://x.example/2'}"),
        ("ot.all(odd.link)", "no cursor, page or offset, and its result has 1 items and {'odatanextlink'"),
        ("ot.all(odd.list)", "it takes cursor, and its result has a bare list of 2 items"),
        ("ot.all(odd.same)", "returned the same page twice, for {'page': 2}"),
        ("ot.all(odd.large)", "exceed 16,777,216 bytes"),
        ("ot.all(odd.fails)", "ZeroDivisionError"),
        ("ot.all(3)", "ot.all takes a tool and its arguments"),
        ("ot.all('odd.adress')", "there is no tool 'odd.adress'; did you mean odd.address?"),
        ("name = 'odd.adress'\not.all(name)", "ot.all: there is no tool 'odd.adress'; did you mean odd.address?"),
        ("ot.all(odd)", "odd is a pack; it has odd."),
        ("ot.all(adress)", "adress is not defined"),
        ("ot.all(ot.all)", "ot.all takes a tool and its arguments"),
        ("ot.all(crm.single, limit=0)", "limit must be an integer of at least 1"),
    ],
)
def test_what_cannot_be_followed_says_what_was_seen(crm, code, words):
    assert words in crm.error(code).message


def test_a_page_that_is_a_title_is_not_a_number(crm):
    assert crm.value("ot.all(odd.title, page='Home')") == ["Home"]


@each(
    ("code", "words"),
    [
        ("ot.all(crm.numbred)", "crm.numbred: there is no such tool; did you mean crm.numbered"),
        ("ot.all(crm.numbered, teir='x')", "crm.numbered: teir: unknown argument"),
        ("ot.all(crm.numbered, tier=3)", "crm.numbered: tier: expected a string"),
        ("ot.all(odd.title)", "odd.title: page: expected a value (required)"),
        ("ot.all('crm.numbered', teir='x')", "crm.numbered: teir: unknown argument"),
    ],
)
def test_it_is_checked_like_the_call_itself(crm, code, words):
    result = crm.run(f"crm.single()\n{code}")
    assert (result.error.reason, result.meta["calls"]) == ("check", 0)
    assert words in result.error.message


def test_an_allow_list_holds_for_the_tool(crm):
    assert (
        crm.error("ot.all(crm.numbered)", allowed=["crm.single"]).message == "line 1: crm.numbered is not allowed here"
    )
    hidden = "name = 'crm.' + 'numbered'\not.all(name)"
    assert "not allowed" in crm.error(hidden, allowed=["crm.single"]).message
    assert crm.value("ot.all(crm.single)", allowed=["crm.single"]) == ITEMS


def test_pages_count_towards_the_limit_of_calls(scripts):
    scripts.tool("odd.count", lambda page=1: [page], page=INTEGER)
    result = scripts.run("ot.all(odd.count)")
    assert (result.error.reason, result.meta["calls"]) == ("calls", 1001)


def test_it_is_told_of_each_page_and_a_gate_is_asked_for_each(crm):
    seen = []

    class Watch:
        def began(self, call):
            seen.append((call.name, dict(call.args)))

        def ended(self, call, result):
            seen.append(result.ok)

    async def gate(call, spec):
        seen.append(spec.name)

    assert crm.value("ot.all(crm.numbered, limit=15)", watch=Watch(), gate=gate) == ITEMS[:15]
    assert seen == [
        ("crm.numbered", {}), "crm.numbered", True, ("crm.numbered", {"page": 2}), "crm.numbered", True,
    ]  # fmt: skip
