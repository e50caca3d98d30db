"""2-ot-pack.md: one test for each scenario of `ot.help`, named after it."""

import random
import re

import pytest
from helpers import definition, examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rs_bpe.bpe import openai
from sources.mcp_servers.harness import settle
from specs.ot import Agent, github

VOCABULARIES = [openai.cl100k_base(), openai.o200k_base()]
DOCS = "https://onetool.beycom.online/reference/tools"
INSTRUCTIONS = "Ask before you crawl a whole site."
SNIPPETS = {
    "b_q": {
        "description": "Ask Brave something",
        "params": {"q": {"description": "The question"}, "count": {"type": "integer", "default": 5}},
        "body": 'brave.search(query="{{ q }}", count={{ count }})',
    },
    "web_fetch_all": {"description": "Fetch pages of the web, one after the other", "body": "None"},
}
ALIASES = {"ws": "brave.web_search", "fetch_web": "webpage.fetch"}
GROUPS = ["## Tools", "## Packs", "## Snippets", "## Aliases"]


@pytest.fixture
def agent(tmp_path):
    with Agent(
        tmp_path,
        packs=["brave", "firecrawl", "webpage", "scaffold", "old_scaffold", "demo"],
        prompts={"packs": {"firecrawl": INSTRUCTIONS}},
        snippets=SNIPPETS,
        aliases=ALIASES,
    ) as agent:
        yield agent


def groups(text):
    """The lines under each heading of a group."""
    found = {}
    for line in text.splitlines():
        if line.startswith("## "):
            found[line] = []
        elif found:
            found[next(reversed(found))].append(line)
    return found


def mentioned(lines, *names):
    """The names that stand in some lines, in the order in which they stand there."""
    words = re.findall(r"[\w$.]+", "\n".join(lines))
    return sorted((name for name in names if name in words), key=words.index)


def tokens(text):
    return max(vocabulary.count(text) for vocabulary in VOCABULARIES)


# Requirement: Unified Help


def test_general_help_no_query(agent):
    text = agent.value("ot.help()")
    assert all(f"ot.{what}(" in text for what in ("tools", "packs", "snippets", "aliases", "help"))
    assert all(level in text for level in ("list", "min", "full"))
    assert "info=" in text
    assert re.search(r"example", text, re.IGNORECASE)
    assert re.search(r"tips?\b", text, re.IGNORECASE)
    assert agent.reads("ot.help()") == text


def test_exact_tool_lookup(agent):
    text = agent.value('ot.help(query="brave.search")')
    assert text.splitlines()[0] == "# brave.search"
    assert "Search the web by Brave." in text
    assert "brave.search(query: str, count: int = 10)" in text
    for argument, type_, words in (("query", "str", "What to look for"), ("count", "int", "How many results to give")):
        [line] = [line for line in text.splitlines() if words in line]
        assert argument in line
        assert type_ in line
    assert "list[str]" in text
    assert "Titles of pages, the best first." in text
    assert 'brave.search(query="tea", count=3)' in text
    assert f"{DOCS}/brave-search/" in text
    assert agent.reads('ot.help(query="brave.search")') == text


def test_exact_pack_lookup(agent):
    text = agent.value('ot.help(query="firecrawl")')
    assert text.splitlines()[0] == "# firecrawl"
    assert INSTRUCTIONS in text
    for name, words in (("firecrawl.scrape", "Scrape one page."), ("firecrawl.crawl", "Follow the links of a site.")):
        [line] = [line for line in text.splitlines() if name in line]
        assert words in line
    assert f"{DOCS}/firecrawl/" in text


def test_snippet_lookup(agent):
    text = agent.value('ot.help(query="$b_q")')
    assert text.splitlines()[0] in ("# b_q", "# $b_q")
    assert "Ask Brave something" in text
    assert "The question" in text
    assert re.search(r"count.*\b5\b", text)
    assert 'brave.search(query="{{ q }}", count={{ count }})' in text
    assert re.search(r"\$b_q q=\S+", text)


def test_alias_lookup(agent):
    text = agent.value('ot.help(query="ws")')
    assert text.splitlines()[0] == "# ws"
    assert "brave.web_search" in text
    assert "ws(" in text


def test_fuzzy_search(tmp_path):
    with Agent(tmp_path, packs=["web", "webpage", "demo"], snippets=SNIPPETS, aliases=ALIASES) as agent:
        text = agent.value('ot.help(query="web fetch")')
    found = groups(text)
    assert list(found) == GROUPS
    assert mentioned(found["## Tools"], "web.fetch", "webpage.fetch") == ["web.fetch", "webpage.fetch"]
    assert mentioned(found["## Packs"], "web") == ["web"]
    assert mentioned(found["## Snippets"], "$web_fetch_all") == ["$web_fetch_all"]
    assert mentioned(found["## Aliases"], "fetch_web") == ["fetch_web"]
    assert "demo.fails" not in text


@pytest.mark.parametrize(
    ("typo", "meant"),
    [
        ("scaffoldl", "scaffold"),
        ("frirecrawl", "firecrawl"),
        ("brvae.search", "brave.search"),
        ("web_serach", "brave.web_search"),
        ("Webpage.Fetsch", "webpage.fetch"),
        ("$b_qq", "$b_q"),
        ("fetch_wbe", "fetch_web"),
    ],
)
def test_fuzzy_matching_with_typos(agent, typo, meant):
    assert meant in agent.value(f"ot.help(query={typo!r}, info='list')")
    assert meant.removeprefix("$") in agent.value(f"ot.help(query={typo!r})")


def test_fuzzy_matching_with_typos_is_sorted_by_match_score(agent):
    found = groups(agent.value('ot.help(query="scaffoldl")'))
    packs = mentioned(found["## Packs"], "old_scaffold", "scaffold")
    assert packs[0] == "scaffold"
    names = agent.value('ot.help(query="scaffoldl", info="list")')
    assert "old_scaffold" not in names or names.index("scaffold") < names.index("old_scaffold")


def test_info_level_list(agent):
    names = agent.value('ot.help(query="web", info="list")')
    assert all(isinstance(name, str) for name in names)
    assert {"webpage", "webpage.fetch", "brave.web_search", "$web_fetch_all", "fetch_web"} <= set(names)
    assert "demo.fails" not in names


@pytest.mark.parametrize("how", ["", ', info="min"'])
def test_info_level_min_default(agent, how):
    text = agent.value(f'ot.help(query="brave"{how})')
    for name, words in (
        ("brave.search", "Search the web by Brave."),
        ("brave.web_search", "Look for pages about something."),
    ):
        assert any(name in line and words in line for line in text.splitlines())


def test_info_level_full(agent):
    text = agent.value('ot.help(query="brave.search", info="full")')
    for field in (
        "# brave.search",
        "Search the web by Brave.",
        "brave.search(query: str, count: int = 10)",
        "What to look for",
        "How many results to give",
        "Titles of pages, the best first.",
        'brave.search(query="tea", count=3)',
        f"{DOCS}/brave-search/",
    ):
        assert field in text


@pytest.mark.parametrize(
    ("pack", "slug"),
    [
        ("brave", "brave-search"),
        ("code", "code-search"),
        ("db", "database"),
        ("ground", "grounding-search"),
        ("llm", "transform"),
        ("web", "web-fetch"),
        ("firecrawl", "firecrawl"),
        ("excel", "excel"),
    ],
)
def test_documentation_url_generation(tmp_path, pack, slug):
    with Agent(tmp_path) as agent:
        agent.pack(pack, 'def look(what: str) -> str:\n    """Look at something."""\n    return what\n')
        agent.value("ot.reload()")
        for query in (pack, f"{pack}.look"):
            text = agent.value(f"ot.help(query={query!r})")
            assert re.findall(rf"{re.escape(DOCS)}\S*", text) == [f"{DOCS}/{slug}/"]


def test_no_matches(agent):
    text = agent.value('ot.help(query="xyznonexistent")')
    assert re.search(r"\bno match", text, re.IGNORECASE)
    assert "xyznonexistent" in text
    assert "ot.tools()" in text
    assert "ot.packs()" in text


# What the decisions add


def test_an_exact_match_is_detailed_whatever_the_level(agent):
    detailed = agent.value('ot.help(query="brave.search")')
    assert agent.value('ot.help(query="brave.search", info="full")').startswith(detailed.splitlines()[0])


def test_a_tool_of_a_server(tmp_path):
    with Agent(tmp_path, servers={"github": github(tmp_path)}) as agent:
        settle(agent.app)
        text = agent.value('ot.help(query="github.search")')
        assert "github" in agent.value('ot.help(query="githbu", info="list")')
    assert text.splitlines()[0] == "# github.search"
    assert "github.search(query: str, repo: str = '...', limit: int = 10)" in text
    assert "Only in this repository" in text


def test_no_matches_at_the_level_list(agent):
    told = agent.value('ot.help(query="xyznonexistent", info="list")')
    assert told == agent.value('ot.help(query="xyznonexistent")')


def test_an_unknown_level_is_refused_with_those_that_there_are(agent):
    error = agent.error('ot.help(query="web", info="everything")')
    assert all(level in error.message for level in ("list", "min", "full", "everything"))


ODD = ["$", ".", "it's", "x" * 5000, "a b " * 900]


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=60) | st.text("ab $_.-'\"\\\n(*", max_size=20) | st.sampled_from(ODD))
def test_any_query_has_an_answer(agent, query):
    try:
        query.encode()
    except UnicodeEncodeError:  # half a character can't be written in code
        return
    assert agent.value(f"ot.help(query={query!r})")
    assert agent.value(f"ot.help(query={query!r}, info='list')")
    assert tokens(agent.reads(f"ot.help(query={query!r})")) < 600


def test_what_is_not_allowed_is_not_found(agent):
    names = agent.value('ot.help(query="web fetch", info="list")', allowed=["ot.help", "demo.foo"])
    assert not {"webpage", "webpage.fetch"} & set(names)
    assert "# webpage.fetch" not in agent.value('ot.help("webpage.fetch")', allowed=["ot.help", "demo.foo"])


# Answers are short, however much there is


# fmt: off
WORDS = [
    "web", "fetch", "page", "search", "read", "write", "list", "get", "find", "send",
    "open", "file", "image", "table", "user", "mail", "chat", "code", "build", "test",
]
# fmt: on


def many(count):
    """Tools whose names and descriptions speak of all sorts of things, often of what is looked for."""
    chance = random.Random(7)  # the same at every run
    for number in range(count):
        name = f"pack{number % 80}.{'_'.join(chance.sample(WORDS, 3))}_{number}"
        yield definition(name, handler="x", description=" ".join(chance.choices(WORDS, k=60)).capitalize() + ".")


@pytest.mark.long
def test_help_over_2000_tools_is_short(tmp_path):
    tools = list(many(2000))
    aliases = {f"web_fetch_{number}": tool["name"] for number, tool in enumerate(tools[:60])}
    about = "Fetch the web, page by page, and tell what there is in it. " * 5
    snippets = {f"fetch_web_{number}": {"description": about, "body": "None"} for number in range(60)}
    with Agent(tmp_path, tools=tools, aliases=aliases, snippets=snippets) as agent:
        assert len(agent.app.tools()) > 2000
        agent.app.search("web")  # reads the table of meanings, for which a busy machine takes seconds
        for query in ("web fetch", "wbe fecth", "fetch", "web", "pack"):
            text = agent.reads(f"ot.help({query!r})")
            assert tokens(text) < 600, text
            assert re.search(r"\bmore\b", text, re.IGNORECASE), text
            assert re.search(r"ot\.(tools|packs|help|search)\(", text), text


@pytest.mark.parametrize(
    ("name", "description"),
    [
        (
            "pack{pack}.web_fetch_{number}",
            "Fetch the web: " + "ウェブからページを取得し、本文を抽出して要約する道具です。" * 5,
        ),
        ("a_server_with_quite_a_long_name_{pack}.web_fetch_and_then_look_at_what_came_back_{number}", "Fetches. " * 20),
    ],
    ids=["in Japanese", "long names"],
)
def test_help_over_many_tools_is_short_whatever_they_are_called(tmp_path, name, description):
    names = [name.format(pack=number % 80, number=number) for number in range(500)]
    tools = [definition(name, handler="x", description=description) for name in names]
    aliases = {f"fetch_the_web_{number}": name for number, name in enumerate(names[:20])}
    snippets = {f"fetch_web_{number}": {"description": description, "body": "None"} for number in range(20)}
    with Agent(tmp_path, tools=tools, aliases=aliases, snippets=snippets) as agent:
        text = agent.reads('ot.help("web fetch")')
    assert tokens(text) < 600, text


def test_help_of_a_pack_of_many_tools_is_short(tmp_path):
    tools = [definition(f"web.{tool['name'].partition('.')[2]}", description=tool["description"]) for tool in many(500)]
    with Agent(tmp_path, tools=tools) as agent:
        text = agent.reads('ot.help("web")')
    assert tokens(text) < 600
    assert re.search(r"ot\.(tools|result)\(", text)
