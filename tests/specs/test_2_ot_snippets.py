"""2-ot-pack.md: one test for each scenario of `ot.snippets`, named after it."""

import pytest
import yaml
from script.test_render import flow_depth
from specs.ot import Agent

SHOWN = """\
name: brv_research
description: Search web and extract structured findings
params:
  topic: {type: string, description: "Topic to research"}
  count: {type: integer, default: 5, description: "Number of sources"}
body: |
  results = brave.search(query="{{ topic }}", count={{ count }})
  llm.transform(input=results, prompt="Extract key findings")

# Example with defaults:
# $brv_research topic=Python
# Expands to:
results = brave.search(query="Python", count=5)
llm.transform(input=results, prompt="Extract key findings")"""

SNIPPETS = {
    "brv_research": {
        "description": "Search web and extract structured findings",
        "params": {
            "topic": {"description": "Topic to research"},
            "count": {"default": 5, "description": "Number of sources"},
        },
        "body": (
            'results = brave.search(query="{{ topic }}", count={{ count }})\n'
            'llm.transform(input=results, prompt="Extract key findings")\n'
        ),
    },
    "few": {
        "description": "Titles of some pages",
        "params": {"topic": {}, "count": {"default": 5}},
        "body": 'brave.search(query="{{ topic }}", count={{ count }})',
    },
    "pkg_info": {"description": "Tell of a library", "body": "demo.foo()"},
    "versions": {"description": "Versions of a PKG", "body": "demo.bar()"},
    "foon": {
        "description": "Get foo() for n items",
        "params": {
            "n": {"type": "integer", "description": "How many"},
            "tags": {"type": "array", "default": ["a"]},
            "loud": {"type": "boolean", "default": False},
        },
        "body": "demo.foo(n={{ n }})",
    },
}


@pytest.fixture
def agent(tmp_path):
    with Agent(tmp_path, packs=["brave", "demo", "llm"], snippets=SNIPPETS) as agent:
        yield agent


# Requirement: Snippet Introspection


def test_list_all_snippets(agent):
    assert agent.value("ot.snippets()") == [f"{name}: {one['description']}" for name, one in SNIPPETS.items()]
    assert agent.value("ot.snippets()") == agent.value('ot.snippets(info="min")')


@pytest.mark.parametrize("pattern", ["pkg", "PKG", "Pkg"])
def test_filter_snippets_by_pattern(agent, pattern):
    """One has it in its name, the other in its description."""
    assert agent.value(f"ot.snippets(pattern={pattern!r}, info='list')") == ["pkg_info", "versions"]


def test_info_level_list(agent):
    assert agent.value('ot.snippets(info="list")') == list(SNIPPETS)


@pytest.mark.parametrize("how", ["", ', info="min"'])
def test_info_level_min(agent, how):
    assert agent.value(f'ot.snippets(pattern="brv"{how})') == [
        "brv_research: Search web and extract structured findings"
    ]


def test_info_level_full(agent):
    text = agent.reads('ot.snippets(pattern="brv_research", info="full")')
    definition = yaml.safe_load(text.partition("\n# Example")[0])
    own = SNIPPETS["brv_research"]
    assert definition["description"] == own["description"]
    assert definition["params"] == {
        "topic": {"type": "string", "description": "Topic to research"},
        "count": {"type": "integer", "default": 5, "description": "Number of sources"},
    }
    assert definition["body"] == own["body"]
    assert "# $brv_research topic=Python" in text.splitlines()


def test_snippet_output_format(agent):
    code = 'ot.snippets(pattern="brv_research", info="full")'
    assert agent.value(code).removesuffix("\n") == SHOWN
    assert agent.reads(code).removesuffix("\n") == SHOWN


# What the decisions add


def test_types_are_told(agent):
    definition = yaml.safe_load(agent.value('ot.snippets(pattern="foon", info="full")').partition("\n# Example")[0])
    assert definition["params"] == {
        "n": {"type": "integer", "description": "How many"},
        "tags": {"type": "array", "default": ["a"]},
        "loud": {"type": "boolean", "default": False},
    }


def test_a_value_has_the_type_of_the_default(agent):
    """As the document's example has it: `count: {default: 5}`."""
    assert agent.error("$brv_research topic=Python count=x").message.startswith("$brv_research: count must be a whole")
    assert agent.value("$few topic=Python count=3") == ["Python 0", "Python 1", "Python 2"]
    assert len(agent.value("$few topic=Python")) == 5


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        *(
            ("string", text)
            for text in ("no", "a: b", "it's", "a\nb", "", "a\u2028b", "a\x7fb", "a\x85b", "\uffff", "\0")
        ),
        *(("number", number) for number in (0.5, 1e300)),
        *(("array", array) for array in ([], [1, "no"], [[1]])),
        *(("object", value) for value in ({}, {"a": 1}, {"a": {"b": [1, {"c": 2}]}})),
    ],
    ids=repr,
)
def test_any_default_is_read_as_that_default(tmp_path, kind, default):
    params = {"a": {"type": kind, "default": default, "description": "One"}}
    with Agent(tmp_path, snippets={"one": {"params": params, "body": "1"}}) as agent:
        shown = agent.value('ot.snippets(info="full")').partition("\n# Example")[0]
    assert yaml.safe_load(shown)["params"]["a"]["default"] == default
    assert flow_depth(shown) <= 2


def test_the_example_is_one_that_works(agent):
    for name in ("foon", "pkg_info", "versions"):
        text = agent.value(f"ot.snippets(pattern={name!r}, info='full')")
        [call] = [line.removeprefix("# ") for line in text.splitlines() if line.startswith(f"# ${name}")]
        expanded = text.partition("# Expands to:\n")[2]
        assert agent.value(call) == agent.value(expanded)


def test_several_are_separated_by_a_line(agent):
    parts = agent.value('ot.snippets(pattern="pkg", info="full")').split("\n---\n")
    assert [part.strip().splitlines()[0] for part in parts] == ["name: pkg_info", "name: versions"]


def test_without_snippets(tmp_path):
    with Agent(tmp_path) as agent:
        assert agent.value("ot.snippets()") == []
        assert agent.value('ot.snippets(info="list")') == []


def test_nothing_matches(agent):
    assert agent.value('ot.snippets(pattern="no such thing")') == []
