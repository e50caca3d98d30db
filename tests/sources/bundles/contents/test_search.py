"""Search: four tiers in their order, the best text first inside of each, then the newest. Queries are only data."""

import pytest
from helpers import each
from hypothesis import example, given
from hypothesis import strategies as st
from sources.bundles.contents.made import MemoryStore, bundle, drop, put, slugs, tool

from onetool.services.search.documents import DESCRIPTION, Document
from onetool.services.search.postings import WordIndex
from onetool.services.search.words import name_key, word_groups


def found(store, query, **more):
    return [(one.rank.tier, one.tool.slug) for one in store.search(query, **more)]


def test_prefix_before_whole_word_before_fuzzy(store):
    put(
        store,
        bundle(),
        tool(1, "whether", description="near, of the names"),
        tool(2, "daily", description="all about the weather"),
        tool(3, "daily-weather"),
        tool(4, "weathercock"),
        tool(5, "weather"),
        tool(6, "station", display_name="Weather Station"),
        tool(7, "sky", tags=("weather",)),
        tool(8, "unrelated"),
        tool(9, "seaweather"),
        tool(10, "rain", description="for weathermen"),
        tool(11, "snow", description="wether is a typo"),
    )
    assert found(store, "Weather") == [
        (0, "weather"),
        (0, "weathercock"),
        (0, "station"),
        (1, "daily-weather"),
        (1, "sky"),
        (1, "daily"),
        (2, "seaweather"),
        (2, "whether"),
        (2, "rain"),
        (2, "snow"),
    ]


def test_an_empty_query_is_everything_newest_first(store):
    put(store, bundle(), *(tool(number) for number in (1, 3, 2)))
    assert found(store, "") == found(store, " \n") == [(3, "tool-3"), (3, "tool-2"), (3, "tool-1")]


def test_the_newest_first_among_equals_then_the_id(store):
    same = "2026-11-15T16:00:00.000Z"
    put(
        store,
        bundle(),
        tool(1, "alpha-one", modified_at="2026-11-15T16:00:00.001Z"),
        tool(3, "alpha-two", modified_at=same),
        tool(2, "alpha-six", modified_at=same),
        tool(4, "alpha-ten", modified_at="not a time"),
    )
    assert slugs(store.search("alpha")) == ["alpha-one", "alpha-six", "alpha-two", "alpha-ten"]


def test_every_word_must_be_there(store):
    put(store, bundle(1, "github"), tool(1, "create-issue"), tool(2, "list-issues"), tool(3, "create-branch"))
    assert found(store, "issue create") == [(1, "create-issue")]
    assert found(store, "create iss")[0] == (0, "create-issue")
    assert found(store, "github issue") == [(1, "create-issue"), (2, "list-issues")], "the bundle's names count, too"
    assert found(store, "creat isue") == [(2, "create-issue")]
    assert found(store, "create unicorn") == []


def test_names_are_found_however_they_are_written(store):
    put(
        store,
        bundle(),
        tool(1, "read-file"),
        tool(2, "getHTTPStatus"),
        tool(3, "x", display_name="Übergröße-Maß"),
        tool(4, "天气预报"),
        tool(5, "y", display_name="🌦️ Sky"),
    )
    assert found(store, "+readfile") == [(1, "read-file")]
    assert found(store, "readfi") == [(2, "read-file")]
    assert found(store, "READ_FILE") == found(store, "read  file") == [(0, "read-file")]
    assert found(store, "http status") == [(1, "getHTTPStatus")]
    assert found(store, "ubergrosse mass") == [(0, "x")]
    assert found(store, "maß") == [(1, "x")]
    assert found(store, "天气") == [(0, "天气预报")]
    assert found(store, "预报") == [(1, "天气预报")], "two ideographs are a word"
    assert found(store, "🌦") == [(0, "y")]


def test_the_search_follows_what_is_written(store):
    put(store, bundle(1, "first-box"), tool(1, "alpha"))
    assert found(store, "first") == [(1, "alpha")]
    put(store, bundle(1, "second-box"), tool(1, "alpha", description="omega"))
    assert found(store, "first") == []
    assert found(store, "second omega") == [(1, "alpha")]
    assert found(store, "omgea", include_disabled=True) == [(2, "alpha")], "a word that was learnt later"
    drop(store, bundle())
    assert found(store, "omega", include_disabled=True) == []


def test_disabled_tools_are_found_only_on_request(store):
    put(store, bundle(), tool(1, "alpha", is_enabled=False), tool(2, "alphabet"))
    assert slugs(store.search("alpha")) == ["alphabet"]
    assert slugs(store.search("alpha", include_disabled=True)) == ["alpha", "alphabet"]


@each(
    "query",
    [
        '"',
        '""',
        "*",
        "a*",
        "NEAR(",
        "NEAR(a b, 3)",
        "AND",
        "a OR",
        "NOT",
        "-",
        "-a",
        "heading:a",
        "{a b}: c",
        "^a",
        "a + b",
        "'; DROP TABLE tools; --",
        "\x00",
        "a\x00b",
        "%",
        "_",
        "[a]",
        "?",
        "\ud800",
        "\U0010ffff",
        "😀" * 100,
        "ß" * 10_000,
        "a" * 10_000,
        "a b " * 2_500,
        " ".join(f"word{number}" for number in range(1_500)),
        "\u0301",
        "\u200d",
        "(" * 5_000,
    ],
)
def test_no_query_is_an_error(query):
    store = MemoryStore()
    put(store, bundle(), tool(1, "alpha"), tool(2, "near", description="and not or a b c"))
    assert len(store.search(query)) <= 2
    assert slugs(store.search("alpha")) == ["alpha"], "and everything is still there"


TEXTS = st.text(max_size=30) | st.text(alphabet="abcdeéßÅ -_*\"'😀天", max_size=20)


def words(text):
    return [group[0] for group in word_groups(text)]


@given(slug=TEXTS, name=TEXTS, description=TEXTS, query=TEXTS)
def test_what_is_in_its_texts_finds_it(slug, name, description, query):
    store = MemoryStore()
    put(store, bundle(), tool(1, slug or "x", display_name=name, description=description))
    store.search(query)
    for text in (slug, name):
        if words(text):
            assert [one.rank.tier for one in store.search(text)] == [0]
    if words(description):
        assert [one.rank.tier for one in store.search(description)] in ([0], [1])
        assert [one.rank.tier for one in store.search(words(description)[-1])] in ([0], [1])


@given(text=st.text())
@example("\u3316" * 17)  # each is a word of six letters in one character: the words are longer than the text
def test_words_of_words_are_the_same_words(text):
    once = name_key(text, " ")
    assert name_key(once, " ") == once
    assert not set(once) & set("\"'*?[](){}:^+-")


# Not all letters come back from upper case: `ı` becomes `i`, `ß` becomes `ss`, and `σ` may become `ς`.
COMES_BACK = st.characters(exclude_characters="σΣ").filter(lambda one: one.upper().lower() == one.lower())


@given(text=st.text(COMES_BACK))
def test_upper_case_makes_no_other_words(text):
    assert name_key(text.upper()) == name_key(text)


@pytest.mark.parametrize(
    ("typed", "meant", "slips"),
    [("wether", "weather", 1), ("serach", "search", 1), ("documants", "documents", 1), ("repozitroy", "repository", 2)],
)
def test_slips_of_the_finger(typed, meant, slips):
    assert near(typed, meant, "unlike") == {meant: slips}


def near(typed, *known):
    index = WordIndex()
    index.put("1", Document((), description=known))
    return index.current().mistyped(typed, DESCRIPTION)


def test_what_is_not_near():
    known = ["tools", "v1", "tool00001", "cats", "weather"]
    assert near("tool00002", *known) == near("v2", *known) == near("cat", *known) == {}
    assert near("wea", *known) == {}
    assert near("weather", *known) == {}, "itself it is not near"
