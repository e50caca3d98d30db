"""2-ot-pack.md: the scenarios of flow style, over everything that functions of `ot` give."""

import pytest
import yaml
from helpers import definition, examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from script.test_render import TRICKY, flow_depth
from specs.ot import Agent, github

from onetool.script.render import render

DATA = [
    *(f"ot.{what}(info={info!r})" for what in ("tools", "packs", "aliases") for info in ("list", "min", "full")),
    *(f"ot.snippets(info={info!r})" for info in ("list", "min")),
    'ot.help(query="search", info="list")',
    "ot.config()",
    "ot.health()",
    "ot.servers()",
    "ot.stats()",
    'ot.search("search")',
]
TEXTS = [
    'ot.snippets(info="full")',
    "ot.help()",
    'ot.help("brave.search")',
    'ot.help("brave")',
    'ot.help("serach")',
    'ot.help("ws")',
    'ot.help("$two")',
    'ot.notify(topic="x", message="y")',
    'ot.stats(period="never")',
    "ot.version()",
    'ot.signature("brave.search")',
    "ot.reload()",
]


@pytest.fixture
def agent(tmp_path):
    with Agent(
        tmp_path,
        packs=["brave", "excel", "demo"],
        prompts={"packs": {"excel": 'Read first.\nThen write: it\'s "safer".'}},
        aliases={"ws": "brave.web_search"},
        snippets={"two": {"description": "Two: of them", "params": {"a": {"default": 1}}, "body": "demo.foo(n=2)"}},
        servers={"github": github(tmp_path)},
        results={"inline_bytes": 1_000_000},
    ) as agent:
        yield agent


# Requirement: YAML Flow Style Output


def test_flow_style_formatting(agent):
    assert agent.reads('ot.tools(pattern="brave.")') == (
        "- {name: brave.search, description: Search the web by Brave.}\n"
        "- {name: brave.web_search, description: Look for pages about something.}"
    )
    assert agent.reads('ot.packs(pattern="brave")') == "- {name: brave, source: local, tool_count: 2}"
    assert agent.reads('ot.packs(pattern="ex")') == "- {name: excel, source: local, tool_count: 2}"
    assert agent.reads('ot.aliases(info="full")') == "- {name: ws, target: brave.web_search}"
    assert agent.reads('ot.packs(pattern="brave")[0]') == "{name: brave, source: local, tool_count: 2}"


@pytest.mark.parametrize("code", ["ot.tools(info='full')", "[one for one in ot.tools(info='full') if 'args' in one]"])
def test_flow_style_formatting_of_long_objects(agent, code):
    result = agent.run(code)
    lines = agent.app.reply(result).text.splitlines()
    assert len(lines) == len(result.data) > 5
    assert all(line.startswith("- {name: ") and flow_depth(line) <= 2 for line in lines)
    assert max(map(len, lines)) > 1000
    assert [yaml.safe_load(line)[0] for line in lines] == result.data


def test_data_of_other_tools_keeps_its_long_texts_in_lines(agent):
    text = "a line that is so long\nand another one after it"
    block = "- text: |-\n    a line that is so long\n    and another one after it"
    assert agent.reads(f"demo.foo()\n[{{'text': {text!r}}}]") == block


def test_readability(agent):
    agent.value("demo.foo()")
    for code in DATA:
        result = agent.run(code)
        assert result.ok, (code, result.error)
        assert result.data, code
        text = agent.app.reply(result).text
        assert yaml.safe_load(text) == result.data, code
        assert flow_depth(text) <= 2, code


def test_text_stays_text(agent):
    for code in TEXTS:
        value = agent.value(code)
        assert isinstance(value, str), code
        assert agent.reads(code) == value


# The same with words that nobody foresaw


def is_kept(text):
    """Whether a config can say it: YAML has no way to write half a character."""
    return text.isprintable() or text.replace("\n", "").isprintable()


SAID = st.text(max_size=60).filter(is_kept) | st.sampled_from([text for text in TRICKY if is_kept(text)])


@settings(max_examples=examples(15), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(SAID.filter(str.strip), min_size=2, max_size=4))
def test_readability_of_any_words(tmp_path_factory, texts):
    tools = [definition(f"demo.tool_{number}", description=text) for number, text in enumerate(texts)]
    folder = tmp_path_factory.mktemp("words")
    with Agent(
        folder,
        packs=["brave"],
        prompts={"packs": {"demo": texts[0], "brave": texts[1]}},
        tools=tools,
        aliases={f"alias_{number}": f"demo.tool_{number}" for number in range(len(texts))},
        snippets={
            f"s_{number}": {"description": text, "params": {"a": {"description": text, "default": text}}, "body": "a"}
            for number, text in enumerate(texts)
        },
    ) as agent:
        values = agent.value(f"[{', '.join(DATA)}]")
        for value in values:
            text = render(value, flow=True)
            assert yaml.safe_load(text) == value
            assert flow_depth(text) <= 2
        shown = agent.value('ot.snippets(info="full")').split("\n---\n")[0].partition("\n# Example")[0]
        assert yaml.safe_load(shown)["description"] == texts[0]
