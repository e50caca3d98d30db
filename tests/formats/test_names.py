"""Names as providers can spell them: valid, one for each tool, the same in any order, and found again."""

import re

import pytest
from helpers import each, examples
from hypothesis import given, settings
from hypothesis import strategies as st

from onetool.core.errors import UnknownProviderError
from onetool.core.spec import ToolSpec
from onetool.formats import PROVIDERS, ProviderNames

PATTERNS = {provider: re.compile(r"[A-Za-z0-9_-]{1,64}") for provider in PROVIDERS} | {
    "gemini": re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}"),
    "mcp": re.compile(r"[A-Za-z0-9_-]{1,64}"),
}

# Few characters, so that spellings meet; and long names that differ only behind the cut.
CLOSE_NAMES = st.text("ab._- é0", min_size=1, max_size=5)
LONG_NAMES = st.builds(lambda end: "x" * 60 + end, st.text("a._", max_size=8))
ANY_NAMES = st.text(min_size=1, max_size=80)
NAMES = st.lists(CLOSE_NAMES | LONG_NAMES | ANY_NAMES, max_size=12)
SOME_PROVIDER = st.sampled_from(list(PROVIDERS))


def names_of(names: list[str], provider: str = "openai") -> ProviderNames:
    return ProviderNames([ToolSpec(name=name, description="") for name in names], provider)


@given(NAMES, SOME_PROVIDER)
def test_spellings_are_valid_and_one_for_each(names: list[str], provider: str) -> None:
    mapping = names_of(names, provider)
    spellings = {name: mapping.to_provider(name) for name in names}
    assert all(PATTERNS[provider].fullmatch(spelling) for spelling in spellings.values())
    assert len(set(spellings.values())) == len(spellings)


@given(NAMES, SOME_PROVIDER)
def test_spellings_lead_back(names: list[str], provider: str) -> None:
    mapping = names_of(names, provider)
    assert all(mapping.from_provider(mapping.to_provider(name)) == name for name in names)
    assert all(mapping.from_provider(name) == name for name in names)


@given(NAMES.flatmap(lambda names: st.tuples(st.just(names), st.permutations(names))), SOME_PROVIDER)
def test_order_does_not_matter(orders: tuple[list[str], list[str]], provider: str) -> None:
    names, shuffled = orders
    first, second = names_of(names, provider), names_of(shuffled, provider)
    assert all(first.to_provider(name) == second.to_provider(name) for name in names)


@given(NAMES, SOME_PROVIDER)
def test_a_valid_name_keeps_its_spelling(names: list[str], provider: str) -> None:
    mapping = names_of(names, provider)
    assert all(mapping.to_provider(name) == name for name in names if PATTERNS[provider].fullmatch(name))


@given(NAMES)
@settings(max_examples=examples(50))
def test_a_name_taken_by_a_spelling_with_hash_is_avoided_too(names: list[str]) -> None:
    clashing = [*names, "a.b", "a__b"]
    hashed = names_of(clashing).to_provider("a.b")
    mapping = names_of([*clashing, hashed])
    assert mapping.to_provider(hashed) == hashed
    assert mapping.to_provider("a.b") != hashed
    assert mapping.from_provider(mapping.to_provider("a.b")) == "a.b"


@each(
    ("provider", "name", "spelling"),
    [
        ("openai", "read_file-2", "read_file-2"),
        ("openai", "time.now", "time__now"),
        ("anthropic", "Ant Design.list/all", "Ant_Design__list_all"),
        ("ollama", "wétter", "w_tter"),
        ("gemini", "time.now", "time__now"),
        ("gemini", "12306-mcp.tickets", "_12306-mcp__tickets"),
        ("gemini", "-x", "_-x"),
        ("openai", "12306-mcp.tickets", "12306-mcp__tickets"),
        ("mcp", "time.now", "time__now"),
        ("mcp", "Ant Design.list", "Ant_Design__list"),
    ],
)
def test_plain_spellings(provider: str, name: str, spelling: str) -> None:
    assert names_of([name], provider).to_provider(name) == spelling


def test_a_clash_gives_the_hash_to_the_changed_name_only() -> None:
    mapping = names_of(["a.b", "a__b"])
    assert mapping.to_provider("a__b") == "a__b"
    assert re.fullmatch(r"a__b_[0-9a-f]{8}", mapping.to_provider("a.b"))
    assert mapping.from_provider("a__b") == "a__b"


def test_changed_names_that_clash_all_get_the_hash() -> None:
    mapping = names_of(["a b", "a/b"])
    assert all(re.fullmatch(r"a_b_[0-9a-f]{8}", mapping.to_provider(name)) for name in ("a b", "a/b"))
    assert mapping.from_provider("a_b") is None


def test_a_long_name_is_cut_and_gets_a_hash() -> None:
    name = "x" * 65
    spelling = names_of([name]).to_provider(name)
    assert re.fullmatch(r"x{55}_[0-9a-f]{8}", spelling)
    assert spelling == names_of([name, "other"]).to_provider(name)


def test_unknown_names() -> None:
    mapping = names_of(["time.now"])
    assert mapping.from_provider("nothing") is None
    # A tool that an old session called, and that is gone: its name must still be one that the provider takes.
    assert mapping.to_provider("gone") == "gone"
    assert PATTERNS["openai"].fullmatch(mapping.to_provider("gone.tool"))
    assert mapping.to_provider("time__now") != "time__now"


def test_unknown_provider() -> None:
    with pytest.raises(UnknownProviderError, match="is not supported"):
        ProviderNames([], "nobody")


@each("provider", list(PROVIDERS))
@each("prefix", ["", "shop."])
def test_names_that_fold_to_nothing_are_told_apart_also_where_they_are_alone(provider: str, prefix: str) -> None:
    alone = [
        names_of([f"{prefix}{name}"], provider).to_provider(f"{prefix}{name}") for name in ("日本", "中国", "日_本")
    ]
    assert len(set(alone)) == 3
    assert all(re.search("[a-z0-9]{8}$", spelling) for spelling in alone)
    assert names_of(["shop.größe"], provider).to_provider("shop.größe") == "shop__gr__e"
    assert names_of(["__"], provider).to_provider("__") == "__"
