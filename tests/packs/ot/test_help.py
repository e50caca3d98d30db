"""How `ot.help` finds what was meant: exact, then what begins so, then words, then what is spelled alike."""

import pytest
from helpers import calls, run
from rs_bpe.bpe import openai

from onetool import App, ToolSpec
from onetool.packs.ot.help import comparable, named, others_for
from onetool.packs.ot.pages import documentation

SCHEMA = {
    "type": "object",
    "properties": {
        "url": {"type": "string", "description": "Which page"},
        "depth": {"type": "integer", "default": 2},
        "mode": {"enum": ["fast", "slow"]},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["url", "mode", "tags"],
}
TOOLS = {
    "web.fetch": "Fetch a page and give its text.",
    "web.fetch_many": "Fetch several pages at once.",
    "firecrawl.scrape": "Take a site apart.",
    "scaffold.create": "Begin a project.",
    "mail.send": "Send a letter. Not for a page of the web.",
    "x.fetcher": "Something else.",
}
CONFIG = """
stats: {enabled: false}
aliases: {wf: web.fetch, gone: no.such, quick_lookup: web.fetch, tidy: firecrawl.scrape}
snippets:
  fetchall: {description: Fetch everything, params: {url: {}}, body: 'web.fetch("{{ url }}")'}
  brv_research: {description: Look around, body: 'None'}
"""


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    folder = tmp_path_factory.mktemp("app")
    (folder / "onetool.yaml").write_text(CONFIG)
    (folder / "prompts.yaml").write_text("packs: {web: Fetch first.}\n")
    with App.open(folder / "onetool.yaml") as app:
        for name, description in TOOLS.items():
            app.catalog.registry.register(
                ToolSpec(name=name, description=description, input_schema=SCHEMA, handler=lambda **_: None)
            )
        yield app


@pytest.fixture
def ask(app):
    def ask(query="", **more):
        result = run(app.runtime.executor, "ot.help", query=query, **more)
        assert result.ok, result.error
        return result.data

    return ask


def names(ask, query):
    return ask(query, info="list")


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("fetc", "web.fetch"),  # begins so
        ("web fetch", "web.fetch"),  # its words
        ("fetch web", "web.fetch"),
        ("several pages", "web.fetch_many"),  # its text
        ("scaffoldl", "scaffold.create"),  # typos
        ("frirecrawl", "firecrawl.scrape"),
        ("web.fecth", "web.fetch"),
        ("wbe fetch", "web.fetch"),
        ("FETCH_MANY", "web.fetch_many"),
        ("begin a project", "scaffold.create"),
    ],
)
def test_a_typo_does_not_defeat_it(ask, query, first):
    found = names(ask, query)
    assert found[0] == first or {"scaffold", "firecrawl"} & set(found)


@pytest.mark.parametrize("sign", ["\x01", "ab ", "é̂"])
def test_a_query_of_megabytes_does_not_hold_up_others(ask, sign):
    with calls(10_000):
        ask(sign * (4_000_000 // len(sign)))


def test_what_begins_so_comes_before_words_before_what_is_alike(ask):
    assert names(ask, "fetch")[:3] == ["web.fetch", "x.fetcher", "web.fetch_many"]
    assert names(ask, "fetch page")[:2] == ["web.fetch", "web.fetch_many"]


def test_packs_snippets_and_aliases_are_found_too(ask):
    text = ask("fetch all the web")
    assert text.index("## Tools") < text.index("## Packs")
    assert "- web: 2 tools, local" in text
    assert "- $fetchall: Fetch everything" in ask("fetch everything")
    assert "- wf -> web.fetch" in ask("wff")
    assert "Aliases" not in ask("scaffoldl")


def test_what_is_called_exactly_so_is_all_that_is_told(ask):
    page = ask("web.fetch")
    assert page.startswith("# web.fetch\n\nFetch a page and give its text.\n\nSignature: web.fetch(url: str, mode: ")
    assert "- url (str): Which page" in page
    assert "- depth (int, default 2)" in page
    assert "- tags (list[str])" in page
    assert "  web.fetch(url='...', mode='fast', tags=[])" in page
    assert page.endswith("Documentation: https://onetool.beycom.online/reference/tools/web-fetch/")
    assert ask("web.fetch", info="full") == page
    assert ask("web.fetch", info="list") == page


def test_a_pack_says_how_it_is_best_used(ask):
    page = ask("web")
    head = "# web\nDocumentation: https://onetool.beycom.online/reference/tools/web-fetch/\n\nFetch first.\n\nTools:\n"
    assert page.startswith(
        f"{head}- web.fetch(url: str, mode: Literal['fast', 'slow'], tags: list[str], depth: int = 2)"
    )
    assert "depth: int = 2): Fetch a page and give its text.\n  - url (str): Which page\n- web.fetch_many(" in page


def test_several_packs_are_listed_at_once_each_with_its_link_under_its_heading(ask):
    text = ask(["web", "mail", "web"])
    pages = text.split("\n\n# ")
    assert [page.removeprefix("# ").partition("\n")[0] for page in pages] == ["web", "mail"]
    assert [page.splitlines()[1] for page in pages] == [
        f"Documentation: {documentation('web')}",
        f"Documentation: {documentation('mail')}",
    ]
    assert text.count("Documentation: ") == 2
    assert "- mail.send(" in text
    assert ask(["mail"]) == ask("mail")
    assert "No matches found for 'xyznonexistent'" in ask(["mail", "xyznonexistent"])
    assert ask([]) == ask()


@pytest.mark.parametrize(("typo", "meant"), [("reserch", "$brv_research"), ("lokup", "quick_lookup")])
def test_a_typo_in_one_word_of_a_name_is_found(ask, typo, meant):
    assert names(ask, typo) == [meant]


@pytest.mark.parametrize(
    ("typo", "meant"),
    [
        ("arownd", "$brv_research: Look around"),  # the description of a snippet
        ("evrythng", "$fetchall: Fetch everything"),
        ("look arownd", "$brv_research: Look around"),
        ("scrpae", "tidy -> firecrawl.scrape"),  # the target of an alias
        ("firecrwal", "tidy -> firecrawl.scrape"),
    ],
)
def test_a_typo_in_the_text_of_a_snippet_or_an_alias_is_found(app, ask, typo, meant):
    name = meant.split(":")[0].split()[0]
    assert name in names(ask, typo)
    assert f"- {meant}" in ask(typo)
    lines = run(app.runtime.executor, "ot.search", query=typo).data
    assert meant in lines[:-1]
    assert meant not in run(app.runtime.executor, "ot.search", query=typo, pack="web").data


def test_a_word_that_is_another_one_is_not_a_typo(ask):
    assert "$brv_research" not in names(ask, "search")


def test_an_alias_of_nothing_says_so(ask):
    assert "There is no tool no.such" in ask("gone")


def test_snippets_go_with_and_without_their_sign(ask):
    assert ask("$fetchall") == ask("fetchall")
    assert names(ask, "$fetchal") == ["$fetchall"]


def test_in_full_each_match_has_its_page(ask):
    text = ask("fetch a page", info="full")
    assert text.startswith("# web.fetch")
    assert text.count("Signature: ") >= 2


@pytest.mark.parametrize("query", ["xyznonexistent", "???", "q" * 5_000, "\x00", "$nothing", "…"])
def test_nothing_is_found_kindly(ask, query):
    text = ask(query)
    assert text.startswith("No matches found for ")
    assert "ot.tools()" in text
    assert "ot.packs()" in text
    assert len(text) < 300
    assert ask(query, info="list") == text


def test_only_what_may_be_used_is_told(app):
    import asyncio

    from onetool import ToolCall

    call = ToolCall("1", "ot.help", {"query": "fetch", "info": "list"})
    found = asyncio.run(app.call(call, allowed=["ot.help", "x.fetcher"]))
    assert found.data == ["x.fetcher"]  # $fetchall calls web.fetch


def test_an_overview_is_short_and_names_what_there_is(ask, app):
    text = ask()
    assert len(openai.cl100k_base().encode(text)) < 450
    for name in ("tools", "packs", "aliases", "snippets", "help", "search", "signature", "call", "result", "stats"):
        assert f"ot.{name}(" in text
        assert f"ot.{name}" in app.catalog.registry


@pytest.mark.parametrize(("pack", "slug"), [("brave", "brave-search"), ("llm", "transform"), ("excel", "excel")])
def test_documentation(pack, slug):
    assert documentation(pack) == f"https://onetool.beycom.online/reference/tools/{slug}/"


def test_names_are_compared_without_signs():
    assert comparable("Web.fetch_Many-2") == "web fetch many 2"


def test_others_score_by_name_then_text_then_likeness():
    texts = {"web": "", "fetcher": "the web", "wab": "", "mail": ""}
    assert others_for("web", named(texts)) == ["web", "fetcher", "wab"]
    assert others_for("mali", named(texts)) == ["mail"]
    assert others_for("fetchr", named(texts)) == ["fetcher"]
