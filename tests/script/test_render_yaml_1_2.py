"""Values as text, for readers of YAML 1.2: its types of words, and lines that end where they do in 1.1 as well.

PyYAML reads 1.1. The versions differ in what a plain word is (`no`, `1:30`, `0o7`, `1e3`) and in the characters that
end a line: the first is what the reader here knows of 1.2, the second must not stand in the text at all.
"""

import re

import yaml
from helpers import check_each, examples
from hypothesis import given, settings
from hypothesis import strategies as st
from script.test_render import KEYS, OTHER_KEYS, TRICKY, same

from onetool.script.render import render

CORE = {  # chapter 10.3.2 of the standard
    "null": r"null|Null|NULL|~|",
    "bool": r"true|True|TRUE|false|False|FALSE",
    "int": r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+",
    "float": r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?(\.inf|\.Inf|\.INF)|\.nan|\.NaN|\.NAN",
}
# What both versions may hold as it is, less the byte order mark and what ends a line in 1.1 alone.
ALIKE = re.compile("[\t\n -~\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]*")

# Not here: below zero and of more than 4,300 digits. 1.2 has no sign for the hexadecimal form that these need.
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(0, 10**5000)
    | st.floats()
    | st.text()
    | st.sampled_from(TRICKY)
    | st.binary(max_size=20)
)
DATA = st.recursive(
    SCALARS, lambda parts: st.lists(parts, max_size=6) | st.dictionaries(KEYS, parts, max_size=6), max_leaves=20
)


class Core(yaml.SafeLoader):
    """Reads with the types of YAML 1.2."""

    yaml_implicit_resolvers = {}  # noqa: RUF012 - PyYAML's own way

    def number(self, node):
        text = self.construct_scalar(node)
        base = {"0o": 8, "0x": 16}.get(text[:2])
        return int(text, base) if base else int(text)

    def truth(self, node):
        return self.construct_scalar(node).lower() == "true"


for kind, words in CORE.items():
    Core.add_implicit_resolver(f"tag:yaml.org,2002:{kind}", re.compile(f"(?:{words})$"), None)
Core.add_constructor("tag:yaml.org,2002:int", Core.number)
Core.add_constructor("tag:yaml.org,2002:bool", Core.truth)


def read(text):
    return yaml.load(text, Core)


def test_the_reader_knows_the_difference():
    assert read("[no, 010, 0o7, 1e3, 1:30, 2024-01-01, 1_0, =, ~, True, .5, <<]") == [
        *("no", 10, 7, 1000.0, "1:30", "2024-01-01", "1_0", "=", None, True, 0.5, "<<")
    ]


def test_any_text_is_read_as_that_text():
    def is_read_as_it_is(text):
        for value in ([text], {"k": text}, {text: 1}, [{"k": text, "l": [text]}], {"k": {"l": {"m": {text: text}}}}):
            written = render(value)
            assert read(written) == value
            assert ALIKE.fullmatch(written)

    check_each(TRICKY, is_read_as_it_is)


@settings(max_examples=examples(60))
@given(DATA)
def test_data_is_read_as_the_same_data(value):
    written = render([value])
    assert same(read(written), [value])
    assert ALIKE.fullmatch(written)


@given(OTHER_KEYS)
def test_keys_that_are_no_text_are_what_they_are(key):
    assert same(read(render({key: 1})), {key: 1})
