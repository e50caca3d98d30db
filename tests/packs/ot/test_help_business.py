"""What a model reads before its first call: seven packs of a business, in one help that leaves nothing out."""

import ast
from pathlib import Path

import pytest
from rs_bpe import openai

from onetool import App

PACKS = Path(__file__).parents[3] / "bench" / "business"
NAMES = sorted(file.stem for file in PACKS.glob("*.py"))
MOST_TOKENS = 3_500


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    folder = tmp_path_factory.mktemp("business")
    (folder / "onetool.yaml").write_text(f"packs: [{PACKS}]\n")
    with App.open(folder / "onetool.yaml") as app:
        yield app


def functions():
    for name in NAMES:
        for node in ast.parse((PACKS / f"{name}.py").read_text()).body:
            if isinstance(node, ast.FunctionDef):
                yield f"{name}.{node.name}", ast.get_docstring(node)


def test_one_help_of_seven_packs_has_all_rules_and_fields(app):
    text = app.run_sync(f"ot.help('{' '.join(NAMES)}')").data
    assert len(openai.o200k_base().encode(text)) <= MOST_TOKENS
    assert "…" not in text
    for name, docs in functions():
        assert f"- {name}(" in text
        described = docs.partition("\n\nArgs:")[0].partition("\n\nReturns:")[0]
        for sentence in " ".join(described.split()).split(". "):
            assert sentence.rstrip(".") in text, name
        [line] = [line for line in text.splitlines() if line.startswith(f"- {name}(")]
        assert "-> {" in line or "-> [{" in line


def test_words_that_are_not_all_packs_are_searched(app):
    assert app.run_sync("ot.help('billing of customers')").data.startswith("No exact match")


def test_what_does_not_fit_is_left_out_whole_and_named(tmp_path):
    rule = "It does this and that in one way or another, and then it does something else. " * 300
    (tmp_path / "long.py").write_text(f'''
def short(x: int) -> int:
    """Do little.

    Only on Mondays.
    """
    return x

def much(x: int) -> int:
    """Do much. And quickly.

    {rule}
    """
    return x
''')
    (tmp_path / "onetool.yaml").write_text("packs: [long.py]\n")
    with App.open(tmp_path / "onetool.yaml") as app:
        text = app.run_sync("ot.help('long')").data
    assert "Do little.\n  Only on Mondays.\n- long.much(x: int) -> int: Do much.\n  And quickly.\n" in text
    assert "There is more about some of these: ot.help(['long.much'])" in text
    assert "in one way" not in text


def test_several_tools_share_what_is_common(app):
    text = app.run_sync("ot.help(['billing.void', 'crm.assign'])").data
    assert text.count("Source: local") == 1
    assert "Example:" not in text
    assert "Refused while the customer has an open complaint" in text
