"""Completion, and commands that only tell what there is, run nothing of a pack and start no server."""

import json
import sys

import pytest
from helpers import invoke, trusted

from onetool.app import App
from onetool.core.errors import ToolFailure

PACK = """
import pathlib
from onetool.sdk import tool, prompt

FLAG = pathlib.Path({flag!r})
FLAG.write_text("imported")
pack = "mine"

class Shape:
    FLAG.write_text("a class was run")

@tool(name="renamed")
def first(path: str = FLAG.write_text("a default was run")) -> str:
    "Say it."
    return path

async def second() -> int:
    return 1

def _hidden(): ...

@prompt
def words() -> str:
    return ""

third = lambda: 3
if True:
    def fourth(): ...
"""

COMPLETIONS = (
    ["tools", "invoke", ""],
    ["tools", "info", "mine."],
    ["tools", "list", "--tool-allow", "a,m"],
    ["stats", "--tool", ""],
    ["bundles", "show", ""],
    ["bundles", "show", "time/"],
    ["servers", "test", ""],
    ["servers", "logs", ""],
    ["servers", "remove", ""],
    ["sessions", "show", ""],
    ["ask", "--session", ""],
    ["run", "--tool-allow", ""],
)


@pytest.fixture
def folder(tmp_path):
    flag = tmp_path / "flag"
    (tmp_path / ".onetool" / "packs" / "whole").mkdir(parents=True)
    (tmp_path / ".onetool" / "packs" / "some.py").write_text(PACK.format(flag=str(flag)))
    (tmp_path / ".onetool" / "packs" / "whole" / "__init__.py").write_text(
        f"open({str(flag)!r}, 'w')\n__all__ = ['_named']\ndef _named(): ...\ndef other(): ...\n"
    )
    (tmp_path / ".onetool" / "packs" / "broken.py").write_text("def f(:\n")
    start = [sys.executable, "-c", f"open({str(flag)!r}, 'w').write('started')"]
    server = f"{{command: {json.dumps(start[0])}, args: {json.dumps(start[1:])}}}"
    declared = {
        "name": "declared",
        "description": "d",
        "type": "function",
        "handler": "h",
        "parameters": {"type": "object", "properties": {}},
        "implementation": {"type": "builtin", "handler": "mine.second"},
    }
    (tmp_path / ".onetool" / "onetool.yaml").write_text(
        f"servers: {{remote: {server}}}\ntools: [{json.dumps(declared)}]\n"
    )
    return trusted(tmp_path)


def completed(folder, words):
    env = {
        "_ONETOOL_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(["onetool", *words]),
        "COMP_CWORD": str(len(words)),
    }
    done = invoke(cwd=folder, env=env)
    return [line.partition(",")[2] for line in done.stdout.splitlines()]


@pytest.mark.parametrize("words", COMPLETIONS, ids=" ".join)
def test_completion_runs_nothing(folder, words):
    completed(folder, words)
    assert not (folder / "flag").exists()


def test_names_of_packs_come_from_their_source(folder):
    names = completed(folder, ["tools", "invoke", ""])
    assert {"time.now", "declared", "ot.help"} <= set(names)
    mine = {"mine.renamed", "mine.second", "mine.third", "mine.fourth", "whole._named"}
    assert {name for name in names if name.startswith(("mine.", "whole."))} == mine


@pytest.mark.parametrize(
    "words", [["stats"], ["stats", "--json"], ["bundles", "list"], ["servers", "list", "--no-connect"]]
)
def test_what_only_tells_runs_nothing(folder, words):
    done = invoke(*words, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert not (folder / "flag").exists()


def test_who_calls_a_tool_that_was_only_parsed_is_told(folder, monkeypatch):
    monkeypatch.chdir(folder)
    with App.open(imports=False) as app:
        spec = app.catalog.registry.get("mine.renamed")
        assert spec is not None
        assert (spec.description, spec.defined_in) == ("Say it.", f"{folder}/.onetool/packs/some.py:12")
        with pytest.raises(ToolFailure, match="was not imported"):
            spec.handler(path="x")  # pyright: ignore[reportOptionalCall]
    assert not (folder / "flag").exists()


def test_what_can_not_be_parsed_is_told_with_its_line(folder, monkeypatch):
    monkeypatch.chdir(folder)
    with App.open(imports=False) as app:
        [told] = [mistake for mistake in app.mistakes if mistake.key == "packs"]
    assert (told.file, told.line) == (f"{folder}/.onetool/packs/broken.py", 1)
