"""What packs offer beside tools: which addresses a resource answers to."""

import re
import subprocess
import sys
from urllib.parse import quote

from helpers import each
from hypothesis import given
from hypothesis import strategies as st

from onetool.core.registry import Prompt, Resource, SingleTool
from onetool.core.spec import ToolSpec

SPEC = ToolSpec(name="p.t", description="d")


def resource(uri):
    return Resource(uri=uri, name="r", spec=SPEC)


def test_a_resource_without_places_is_its_own_address_and_no_other():
    one = resource("notes://today?x=[a]")
    assert one.variables == ()
    assert one.match("notes://today?x=[a]") == {}
    for other in ("notes://today", "notes://today?x=a", "notes://today?x=[a]/", "", "NOTES://today?x=[a]"):
        assert one.match(other) is None, other


def test_places_are_filled_by_what_stands_there():
    one = resource("notes://{day}/{page}.txt")
    assert one.variables == ("day", "page")
    assert one.match("notes://monday/1.txt") == {"day": "monday", "page": "1"}
    for other in ("notes://monday/1xtxt", "notes://monday/.txt", "notes:///1.txt", "notes://a/b/1.txt", "x://a/1.txt"):
        assert one.match(other) is None, other


@each("hidden", ["a/b", "a%2Fb", "..%2f", "..", "%2E", "", "a%00b", "a%0Ab", "a\nb", "%7F"])
def test_a_place_is_one_segment_that_can_be_shown_and_nothing_hides_in_it(hidden):
    assert resource("notes://{day}").match(f"notes://{hidden}") is None


@each(
    ("written", "meant"),
    [("a%20b", "a b"), ("%C3%A9", "é"), ("a+b", "a+b"), ("100%", "100%"), ("%zz", "%zz"), ("é", "é")],
)
def test_percents_are_read_once(written, meant):
    assert resource("notes://{day}").match(f"notes://{written}") == {"day": meant}
    assert resource("notes://{day}").match("notes://%2541") == {"day": "%41"}


VALUES = st.text(min_size=1).filter(lambda text: text.isprintable() and "/" not in text and text not in (".", ".."))


@given(VALUES, VALUES)
def test_every_other_value_can_be_asked_for(one, other):
    uri = f"notes://{quote(one, safe='')}/{quote(other, safe='')}"
    assert resource("notes://{a}/{b}").match(uri) == {"a": one, "b": other}


@given(
    st.text(st.characters(exclude_characters="{}"), max_size=20),
    st.text(st.sampled_from("ab.*+?()[]|^$\\"), min_size=1).filter(lambda text: text not in (".", "..")),
)
def test_what_stands_around_the_places_means_only_itself(around, value):
    one = resource(f"x:{around}{{a}}{around}")
    assert one.match(f"x:{around}{quote(value, safe='')}{around}") == {"a": value}


@each("template", ["x://.*{a}", "x://(a|b){a}", "x://^${a}$", "x://[{a}]", "x://\\d{a}", "x://a{{b}}"])
def test_characters_of_patterns_are_no_pattern(template):
    one = resource(template)
    filled = re.sub(r"\{\w+\}", "value", template)
    assert one.match(filled) == dict.fromkeys(one.variables, "value")
    assert one.match(f"{filled}/more") is None
    assert one.match("x://anything") is None


def test_a_hostile_address_costs_no_time():
    """In a process of its own, which can be ended: a pattern that never ends can't."""
    code = (
        "from onetool.core.registry import Resource; from onetool.core.spec import ToolSpec\n"
        "spec = ToolSpec(name='t', description='')\n"
        "print(Resource(uri='x://{a}-{b}-{c}/{d}', name='r', spec=spec).match('x://' + '-' * 20_000))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=5, check=True)
    assert done.stdout == "None\n"


def test_behind_an_offer_is_a_catalogue_of_one():
    alone = SingleTool(SPEC)
    assert alone.get("p.t") is SPEC
    assert alone.get("p.other") is None
    assert list(alone.names()) == ["p.t"]
    assert Prompt(name="x", spec=SPEC).title is None
