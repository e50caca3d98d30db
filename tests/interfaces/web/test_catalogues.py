"""The page's words: every language has every text, and no text is left that nobody shows."""

import ast
import re
from pathlib import Path
from typing import get_args

import pytest
from web.build import WEB

import onetool
from onetool.app import findings
from onetool.ask.errors import Reason
from onetool.ask.providers import ranked_providers

SOURCES = WEB / "src"
ENTRY = re.compile(r'^  "([\w.-]+)":\s*("(?:[^"\\]|\\.)*")', re.MULTILINE)
FILLED_IN = re.compile(r"\{(\w+)\}")
LANGUAGES = sorted(path.stem for path in (SOURCES / "lib" / "locales").glob("*.ts") if path.stem != "en")


def catalogue(language):
    """The texts by their keys, in the order of the file."""
    return ENTRY.findall((SOURCES / "lib" / "locales" / f"{language}.ts").read_text(encoding="utf-8"))


def code():
    """All sources of the page but its words."""
    files = [path for kind in ("*.ts", "*.svelte") for path in SOURCES.rglob(kind)]
    return "\n".join(
        path.read_text(encoding="utf-8") for path in files if "locales" not in path.parts and path.name != "types.d.ts"
    )


def used():
    """Keys that stand in the code as they are, and beginnings of those that are put together."""
    text = code()
    whole = set(re.findall(r"""["']([a-z][\w.-]*)["']""", text))
    beginnings = set(re.findall(r"t\(`([\w.-]+\.)\$\{", text))
    return whole, beginnings


@pytest.mark.parametrize("language", ["en", *LANGUAGES])
def test_no_text_is_there_twice(language):
    keys = [key for key, _ in catalogue(language)]
    assert len(keys) > 100
    assert [key for key in keys if keys.count(key) > 1] == []


@pytest.mark.parametrize("language", ["en", *LANGUAGES])
def test_no_text_names_providers(language):
    """A list of them would miss the next one. Ollama is named, as a program that somebody may start."""
    found = [key for key, text in catalogue(language) for name in ranked_providers() if name in text.lower()]
    assert found == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_has_every_text(language):
    english, other = dict(catalogue("en")), dict(catalogue(language))
    assert sorted(english.keys() - other.keys()) == [], f"{language} lacks them"
    assert sorted(other.keys() - english.keys()) == [], f"{language} has them and English does not"
    for key, text in english.items():
        assert set(FILLED_IN.findall(text)) == set(FILLED_IN.findall(other[key])), f"{key} in {language}"


def test_every_text_is_shown_somewhere():
    whole, beginnings = used()
    unused = [key for key in dict(catalogue("en")) if key not in whole and not key.startswith(tuple(beginnings))]
    assert unused == []


def test_every_text_that_is_asked_for_is_there():
    known = dict(catalogue("en"))
    asked = set(re.findall(r"""\bt\(["']([^"']+)["']""", code()))
    assert len(asked) > 50
    assert sorted(asked - known.keys()) == []
    for beginning in used()[1]:
        assert any(key.startswith(beginning) for key in known), beginning


def told_reasons():
    """Every `code` and `reason` that stands in the server's sources as it is."""
    at = {"RestError": 1, "HttpError": 1, "CallRefused": 0, "ToolFailure": 1, "BadArguments": 1}
    named = re.compile(rf"\b(?:code|reason)=|\b(?:{'|'.join(at)})\(")
    texts = (path.read_text(encoding="utf-8") for path in Path(onetool.__file__).parent.rglob("*.py"))
    for text in filter(named.search, texts):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "id", "")
                if name in ("Mistake", "ReadFile", "KeptFile", "replace"):
                    continue  # findings, and files that can't be read
                given = [one.value for one in node.keywords if one.arg in ("code", "reason")]
                given += node.args[at[name] : at[name] + 1] if name in at else []
                texts = [one.value for one in given if isinstance(one, ast.Constant) and isinstance(one.value, str)]
                yield from (text for text in texts if re.fullmatch("[a-z][a-z_]+", text))


def test_every_error_and_finding_has_words_in_chinese():
    text = (SOURCES / "lib" / "page" / "failures-zh-CN.ts").read_text(encoding="utf-8")
    failures, found = (set(re.findall(r'^  "?([\w/]+)"?: "', part, re.MULTILINE)) for part in text.split("FINDINGS"))
    wanted = {*told_reasons(), *get_args(Reason)}
    assert len(wanted) > 60
    assert sorted(wanted - failures) == []
    source = Path(findings.__file__).read_text(encoding="utf-8")
    reasons = set(re.findall(r'(?:^        \("|"(?=server_))(\w+)"', source, re.MULTILINE))
    assert len(reasons) > 10
    assert reasons == found
