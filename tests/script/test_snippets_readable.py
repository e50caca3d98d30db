"""A snippet as its readers see it: the definition, and what a call of it becomes."""

import yaml
from helpers import each

from onetool.config.model import Param, Snippet
from onetool.script.snippets import expand, snippet_definition

FULL = """\
name: every
description: All kinds
params:
  text: {type: string}
  whole: {type: integer}
  part: {type: number, description: "How much: really"}
  flag: {type: boolean, default: false}
  many: {type: array}
  things:
    type: object
    default: {a: [1]}
  half: {type: number, default: 0.5}
  word: {type: string, default: "no"}
body: |
  [{{ text }}, {{ whole }}, {{ part }}, {{ flag }}, {{ many }}, {{ things }}, {{ half }}, {{ word }}]

# Example with defaults:
# $every text=Python whole=1 part=0.5 many=["a"]
# Expands to:
['Python', 1, 0.5, False, ['a'], {'a': [1]}, 0.5, 'no']
"""


def test_each_parameter_has_its_type_its_default_and_its_description():
    params = {
        "text": Param(),
        "whole": Param(type="integer"),
        "part": Param(type="number", description="How much: really"),
        "flag": Param(type="boolean", default=False),
        "many": Param(type="array"),
        "things": Param(type="object", default={"a": [1]}),
        "half": Param(default=0.5),
        "word": Param(default="no"),
    }
    body = f"[{', '.join(f'{{{{ {name} }}}}' for name in params)}]"
    snippet = Snippet(description="All kinds", params=params, body=body)
    text = snippet_definition("every", snippet)
    assert text == FULL
    assert yaml.safe_load(text.partition("\n#")[0])["body"] == f"{body}\n"
    example, _, code = text.partition("defaults:\n# ")[2].partition("\n# Expands to:\n")
    assert expand(example, {"every": snippet}) == code.rstrip("\n")


@each("body", ["  a = 1\n", "a\tb\x00", "", "one\n\n\ntwo\n", "a: b\n# c"])
def test_any_body_reads_back(body):
    above, _, _ = snippet_definition("odd", Snippet(body=body)).partition("\n\n# Example")
    assert yaml.safe_load(above)["body"].rstrip("\n") == body.rstrip("\n")


def test_one_that_can_not_be_used_says_why():
    text = snippet_definition("bad", Snippet(body="{{ missing(", description="d"))
    assert "# It can't be used like this: the body of $bad can't be used" in text
