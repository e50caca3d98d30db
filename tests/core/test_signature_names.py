"""How code says a name: as it is where Python can, else by the nearest identifier, and always by one of its own."""

from keyword import iskeyword, kwlist
from unicodedata import normalize

from helpers import each
from hypothesis import given
from hypothesis import strategies as st

from onetool.core.signature import as_identifier, as_identifiers

# Short names that are spelled alike, so that they do clash.
CLOSE = st.text(st.sampled_from("ab_-. ﬁfi½é"), min_size=1, max_size=3)


@each(
    ("name", "spelling"),
    [
        ("read_file", "read_file"),
        ("readFile", "readFile"),
        ("größe", "größe"),
        ("日本", "日本"),
        ("get-date", "get_date"),
        ("12306-mcp", "_12306_mcp"),
        ("a b/c", "a_b_c"),
        ("class", "class_"),
        ("None", "None_"),
        ("match", "match"),
        ("ﬁle", "file"),
        ("gro\u0308ße", "größe"),
        ("x²", "x2"),
        ("½", "_1_2"),
        ("😀", "_"),
        ("ｉｆ", "if_"),
    ],
)
def test_spellings(name, spelling):
    assert as_identifier(name) == spelling


@given(st.text() | st.sampled_from(kwlist))
def test_any_name_has_a_spelling_that_python_reads_as_it_stands(name):
    spelling = as_identifier(name)
    assert spelling.isidentifier()
    assert not iskeyword(spelling)
    assert normalize("NFKC", spelling) == spelling
    assert as_identifier(spelling) == spelling


@given(st.text(st.characters(codec="ascii")).filter(str.isidentifier))
def test_what_python_can_say_stays(name):
    assert as_identifier(name) == name + "_" * iskeyword(name)


@given(st.lists(CLOSE, unique=True))
def test_every_name_can_be_said(names):
    assert sorted(as_identifiers(names).values()) == sorted(names)


@given(st.lists(CLOSE, unique=True).flatmap(lambda names: st.tuples(st.just(names), st.permutations(names))))
def test_the_order_does_not_matter(both):
    assert as_identifiers(both[0]) == as_identifiers(both[1])


@given(st.lists(CLOSE, unique=True))
def test_who_is_spelled_like_his_name_keeps_it(names):
    found = as_identifiers(names)
    assert all(found[name] == name for name in names if as_identifier(name) == name)


def test_two_that_are_spelled_alike_are_told_apart_by_their_names():
    found = {name: spelling for spelling, name in as_identifiers(["get-date", "get.date"]).items()}
    assert found["get-date"].startswith("get_date_")
    assert found["get.date"].startswith("get_date_")
    assert len(set(found.values())) == 2


def test_a_name_that_looks_like_anothers_spelling_hides_nobody():
    first, second = as_identifiers(["get-date", "get.date"])
    for names in (["get-date", "get.date", first, second], [second, first, "get.date", "get-date"]):
        found = as_identifiers(names)
        assert sorted(found.values()) == sorted(names)
        assert found[first] == first


def test_words_that_mean_something_else_are_left_alone():
    found = as_identifiers(["fs", "x"], taken=["fs"])
    assert set(found.values()) == {"fs", "x"}
    assert "fs" not in found
