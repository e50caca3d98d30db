"""Search: what it finds, in which order, how well on public data sets, and that nothing makes it stumble."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from helpers import calls, each
from hypothesis import given, settings
from hypothesis import strategies as st

from onetool.core.spec import ToolSpec
from onetool.services.search import SearchIndex
from onetool.services.search.words import name_key, stem, word_groups

DATA = Path(__file__).parent.parent / "data"


def tool(name: str, description: str = "", **more: Any) -> ToolSpec:
    return ToolSpec(name=name, description=description, **more)


def parameters(**descriptions: str) -> dict[str, Any]:
    properties = {name: {"type": "string", "description": text} for name, text in descriptions.items()}
    return {"type": "object", "properties": properties}


TOOLS = (
    tool(
        "brave.web_search", "Search the web and list the pages found", input_schema=parameters(query="What to look for")
    ),
    tool("brave.news_search", "Recent news articles", input_schema=parameters(freshness="How old an article may be")),
    tool("fs.read_file", "The text of a file", input_schema=parameters(path="Where it is", encoding="utf-8 or base64")),
    tool("fs.write_file", "Put text into a file, replacing what was there"),
    tool("weather.getForecast", "Temperature and rain for the next days in a city", tags=("climate",)),
    tool("currency.convert", "Turn an amount of money into another currency"),
    tool("地图.查询", "查询城市的天气预报和空气质量"),
    tool("time.now", "The current time"),
    tool("secret.read_file", "Read a file in secret", hidden=True),
)
INDEX = SearchIndex(TOOLS)


def names(query: str, limit: int = 5, index: SearchIndex = INDEX) -> list[str]:
    return [spec.name for spec, _ in index.search(query, limit)]


# --- what it finds


@each(
    ("query", "first"),
    [
        ("search the web", "brave.web_search"),
        ("news", "brave.news_search"),
        ("reading a file", "fs.read_file"),
        ("conversion of money", "currency.convert"),
        ("how warm and rainy, what temperature", "weather.getForecast"),
        ("base64", "fs.read_file"),  # said only of a parameter
        ("freshness", "brave.news_search"),  # the name of a parameter
        ("climate", "weather.getForecast"),  # a tag
        ("replace text", "fs.write_file"),
        ("now", "time.now"),
        ("What's the current time?", "time.now"),
    ],
)
def test_finds_by_the_words_of_any_field(query: str, first: str) -> None:
    assert names(query)[0] == first


@each(
    ("query", "first"),
    [
        ("serach web", "brave.web_search"),
        ("curency", "currency.convert"),
        ("forcast", "weather.getForecast"),
        ("tempreature", "weather.getForecast"),
        ("eather", "weather.getForecast"),  # even the first letter
    ],
)
def test_forgives_typing_mistakes(query: str, first: str) -> None:
    assert names(query)[0] == first


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("web sea", "brave.web_search"),
        ("fore", "weather.getForecast"),
        ("conv", "currency.convert"),
        ("n", "brave.news_search"),
    ],
)
def test_finds_while_somebody_is_typing(query: str, first: str) -> None:
    assert names(query)[0] == first


def test_finds_a_begun_word_that_stands_before_others() -> None:
    assert names("tempera city")[0] == "weather.getForecast"


@each("query", ["getForecast", "get_forecast", "get forecast", "GETFORECAST", "weather forecast"])
def test_takes_camel_case_apart_and_puts_it_together(query: str) -> None:
    assert names(query)[0] == "weather.getForecast"


@pytest.mark.parametrize("query", ["readFile", "read-file", "ReadFile", "readfile"])
def test_spelling_of_a_name_does_not_matter(query: str) -> None:
    assert names(query)[0] == "fs.read_file"


@each("query", ["天气", "城市天气", "气", "空气质量怎么样", "查询"])
def test_finds_text_without_spaces(query: str) -> None:
    assert names(query) == ["地图.查询"]


def test_finds_other_scripts_and_ignores_accents() -> None:
    index = SearchIndex(
        [tool("a", "Übersetzung für das Café"), tool("b", "Прогноз погоды"), tool("c", "मौसम की जानकारी")]
    )
    assert names("cafe", index=index) == names("ubersetzung", index=index) == ["a"]
    assert names("ПОГОДЫ", index=index) == ["b"]
    assert names("मौसम", index=index) == ["c"]


def test_hidden_tools_are_left_out() -> None:
    assert "secret.read_file" not in names("secret.read_file", limit=100)


@each("query", ["", "   ", "\n", "!?* --- …", "qqqqzzzzxxxx"])
def test_nothing_asked_or_nothing_alike_finds_nothing(query: str) -> None:
    assert INDEX.search(query) == []


@pytest.mark.parametrize("limit", [0, -1, -100])
def test_a_limit_below_one_gives_nothing(limit: int) -> None:
    assert INDEX.search("file", limit=limit) == []


def test_no_tools_at_all() -> None:
    assert SearchIndex([]).search("anything") == []


def test_reads_nested_parameters_and_survives_odd_schemas() -> None:
    nested = {
        "type": "array",
        "items": {"anyOf": [{"properties": {"latitude": {"description": "North or south"}}}, True]},
    }
    odd = {"properties": ["not", "a", "mapping"], "description": 7, "anyOf": {"properties": None}, "items": "x"}
    index = SearchIndex([tool("odd", input_schema=odd), tool("deep", input_schema={"properties": {"points": nested}})])
    assert names("latitude", index=index) == names("south", index=index) == ["deep"]


# --- in which order


def test_a_name_ranks_before_any_text() -> None:
    talkative = tool("other", "search search web_search brave.web_search brave web search " * 5)
    index = SearchIndex([talkative, *TOOLS])
    for query in ("brave.web_search", "web_search", "web search", "Brave Web Search", "search"):
        assert names(query, index=index)[0] == "brave.web_search"


def test_the_exact_name_ranks_before_a_similar_spelling() -> None:
    index = SearchIndex([tool("readFile"), tool("read_file"), tool("Read.File")])
    for name in ("readFile", "read_file", "Read.File"):
        assert names(name, index=index)[0] == name


def test_a_name_in_a_sentence_ranks_first() -> None:
    assert names("how do I write text with `fs.read_file`, please?")[0] == "fs.read_file"


def test_a_name_of_one_plain_word_is_just_a_word_in_a_sentence() -> None:
    index = SearchIndex([tool("now", "Trends of the hour"), tool("clock", "The current time of day")])
    assert names("what is the current time of the day now", index=index)[0] == "clock"


def test_a_name_made_of_signs_is_found() -> None:
    assert names("++", index=SearchIndex([tool("--"), tool("++")])) == ["++"]


def test_everyday_words_tip_the_scales_between_names() -> None:
    index = SearchIndex([tool("set_info"), tool("get_info"), tool("get_page")])
    assert names("get the info", index=index)[0] == "get_info"


@each(
    ("query", "first"),
    [
        ("which notes are there", "notes.list"),
        ("What is in a note?", "notes.list"),
        ("is there a note about tea", "notes.list"),
        ("how many notes do I have", "notes.list"),
        ("how do I change a note", "notes.add"),
        ("can you write a note?", "notes.add"),
        ("a note about tea", "notes.add"),
        ("what does notes.add do?", "notes.add"),  # named
    ],
)
def test_a_question_prefers_tools_that_read(query: str, first: str) -> None:
    index = SearchIndex(
        [
            tool("notes.add", "Put a note about something there", read_only=False),
            tool("notes.list", "Give the notes", read_only=True),
        ]
    )
    assert names(query, 1, index) == [first]
    assert len(names(query, 5, index)) == 2


def test_ties_stay_in_the_order_of_registration() -> None:
    twins = [tool(f"{letter}.same", "All alike") for letter in "zamkb"]
    assert names("alike", index=SearchIndex(twins)) == [twin.name for twin in twins]
    assert names("alike", limit=2, index=SearchIndex(twins)) == ["z.same", "a.same"]


@pytest.mark.long
def test_the_same_question_gets_the_same_answer_in_every_process() -> None:
    code = (
        "from onetool.core.spec import ToolSpec; from onetool.services.search import SearchIndex;"
        "texts = [f'word{n % 7} walking wording worship file{n % 5}' for n in range(60)];"
        "index = SearchIndex(ToolSpec(name=f'p.t{n}', description=text) for n, text in enumerate(texts));"
        "print([(s.name, x) for q in ('wor', 'filee wrding', 'walk file3') for s, x in index.search(q, 20)])"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(runs) == 1


def test_threads_share_one_index() -> None:
    queries = ["search the web", "serach", "天气", "read file", "fore"] * 40
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(names, queries)) == [names(query) for query in queries]


# --- words and stems


@each(
    "forms",
    [
        "convert converts converted converting converter conversion",
        "create creates creating creator creation",
        "summary summaries summarize summarizing summarization summarise",
        "run runs running runner",
        "query queries querying",
        "recommend recommends recommendation recommendations",
        "analyze analyzes analysis analyse analyzer",
        "manage manager management",
    ],
)
def test_forms_of_a_word_have_one_stem(forms: str) -> None:
    assert len({stem(form) for form in forms.split()}) == 1


@each("pair", ["document docu", "station stat", "movie move", "string str", "speed spe", "status statu"])
def test_words_that_only_look_alike_keep_apart(pair: str) -> None:
    one, other = pair.split()
    assert stem(one) != stem(other)


def test_ways_to_write_a_name() -> None:
    assert list(word_groups("readFile2 getURLs HTTPServer a_b.c-d")) == [
        ("readfile2", "read", "file", "2"),
        ("geturls", "get", "urls"),
        ("httpserver", "http", "server"),
        *[("a",), ("b",), ("c",), ("d",)],
    ]
    assert (
        name_key("brave.web_search") == name_key("Brave Web-Search") == name_key("braveWebSearch") == "bravewebsearch"
    )


# --- how much work. The limits are wide; what they catch is a step that became quadratic.


@cache
def many() -> SearchIndex:
    kinds = json.loads((DATA / "search_golden.json").read_text("utf-8"))["tools"]
    specs = [
        tool(f"{kind['name']}_{copy}", f"{kind['description']} word{copy}", input_schema=kind["inputSchema"])
        for copy in range(45)
        for kind in kinds
    ]
    with calls(3_000_000):
        return SearchIndex(specs)


@pytest.mark.long
def test_two_thousand_tools_answer_at_once() -> None:
    queries = [
        "read a text file",
        "what time is it in Tokyo",
        "serach nodes",
        "list everything in the folder",
        "commit",
    ]
    index = many()
    for query in queries:
        index.search(query)
    with calls(20_000):
        for query in queries:
            index.search(query)


@pytest.mark.long
@pytest.mark.parametrize(
    "query",
    [
        "x" * 10_000,
        "?!*.-_" * 1_700,
        "file " * 2_000,
        "天气预报" * 2_500,
        " ".join(f"unknown{chr(97 + n % 26)}word{n}" for n in range(700)),
        "aB" * 5_000,
        "\ufdfa" * 10_000,  # one character that stands for eighteen
        "\ud800\x00\U0010ffff" * 3_000,
        "e\u0301" * 5_000,
    ],
    ids=["one word", "signs", "repeated", "no spaces", "unknown words", "camels", "ligatures", "no text", "accents"],
)
def test_long_and_weird_queries_are_quick_and_safe(query: str) -> None:
    index = many()
    index.search("file")  # the first search makes the vectors
    with calls(1_000_000):
        index.search(query)


def test_importing_and_plain_searching_loads_no_fuzzy_matcher() -> None:
    code = (
        "import sys; from onetool.core.spec import ToolSpec; from onetool.services.search import SearchIndex;"
        "assert SearchIndex([ToolSpec(name='read_file', description='Text of a file')]).search('read a file');"
        "assert 'rapidfuzz' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# --- whatever comes

some_text = st.text(max_size=60) | st.sampled_from(["read file", "Web-Search", "天气 forecast", "searhc", "getURLs2"])
some_tools = st.lists(
    st.builds(
        tool,
        name=st.text(min_size=1, max_size=20) | st.sampled_from([spec.name for spec in TOOLS]),
        description=some_text,
        tags=st.lists(some_text, max_size=2).map(tuple),
        hidden=st.booleans(),
    ),
    max_size=12,
)


@settings(deadline=None)
@given(specs=some_tools, query=some_text, limit=st.integers(-2, 15))
def test_answers_are_always_well_formed(specs: list[ToolSpec], query: str, limit: int) -> None:
    found = SearchIndex(specs).search(query, limit)
    scores = [score for _, score in found]
    assert len(found) <= max(limit, 0)
    assert scores == sorted(scores, reverse=True)
    assert all(score > 0 for score in scores)
    assert len({id(spec) for spec, _ in found}) == len(found)
    assert not any(spec.hidden for spec, _ in found)


@settings(deadline=None)
@given(specs=some_tools, data=st.data())
def test_an_exact_name_always_comes_first(specs: list[ToolSpec], data: st.DataObject) -> None:
    shown = [spec.name for spec in specs if not spec.hidden and spec.name == spec.name.strip() != ""]
    if shown:
        name = data.draw(st.sampled_from(shown))
        assert names(name, index=SearchIndex(specs))[0] == name


@given(st.text())
def test_any_text_has_words_and_every_word_a_stem(text: str) -> None:
    assert all(word and stem(word) for group in word_groups(text) for word in group)
