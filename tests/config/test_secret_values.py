"""The key `secrets`: a file that only its owner may read, or a mapping. Nothing repeats a value."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from onetool import App
from onetool.config import Config
from onetool.core.errors import Mistake

Load = Callable[..., Config]
Write = Callable[..., Path]
OneMistake = Callable[..., Mistake]


def test_a_file_wins_over_the_environment(load: Load, write: Write) -> None:
    file = write("A: of-the-file\n", "sub/secrets.yaml")
    config = load("secrets: sub/secrets.yaml\nsettings: {p: {a: '${A}', b: '${B}'}}\n", {"A": "of-env", "B": "b-env"})
    assert config.settings == {"p": {"a": "of-the-file", "b": "b-env"}}
    assert config.secrets.file == file
    assert config.secrets.names() == ["A"]
    assert config.warnings == ()


def test_a_mapping_works_with_a_warning(load: Load) -> None:
    config = load("menu: run\nsecrets: {A: in-line-0}\nhttp: {token: ${A}}\n")
    assert config.http.token == "in-line-0"
    (warning,) = config.warnings
    assert (warning.line, warning.key, warning.severity) == (2, "secrets", "warning")
    assert "secrets: secrets.yaml" in (warning.hint or "")
    assert "in-line" not in repr(config)


def test_the_files_name_may_come_from_the_environment(load: Load, write: Write) -> None:
    file = write("A: of-file\n", "my.yaml")
    assert load("secrets: ${SECRETS}\n", {"SECRETS": str(file)}).secrets.get("A") == "of-file"


def test_an_empty_file_and_no_file(load: Load, write: Write) -> None:
    write("# none yet\n", "secrets.yaml")
    assert load("secrets: secrets.yaml\n").secrets.names() == []
    assert load("secrets:\n").secrets.names() == []


@pytest.mark.skipif(os.name == "nt", reason="modes say nothing there")
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o620])
def test_a_file_that_others_may_read_is_refused(mode: int, mistake: OneMistake, write: Write, tmp_path: Path) -> None:
    file = write("A: of-file\n", "my secrets.yaml")
    file.chmod(mode)
    found = mistake("menu: run\nsecrets: my secrets.yaml\nhttp: {token: ${A}}\n")
    assert (found.file, found.line, found.key) == (str(tmp_path / "onetool.yaml"), 2, "secrets")
    assert found.hint == f"run: chmod 600 '{file}'"


def test_a_missing_file(mistake: OneMistake, tmp_path: Path) -> None:
    found = mistake("menu: run\nsecrets: gone.yaml\n")
    assert (found.file, found.line, found.key) == (str(tmp_path / "onetool.yaml"), 2, "secrets")
    assert found.message == f"the file {tmp_path / 'gone.yaml'} does not exist"


@pytest.mark.parametrize(
    ("text", "line", "key", "message"),
    [
        ("A: x\nB: 1234567\n", 2, "B", "a secret must be a string"),
        ("A: x\nB: [sesame]\n", 2, "B", "a secret must be a string"),
        ("A: sesame\nA: sesame\n", 2, "A", "set twice, in line 1 and in line 2"),
        ("A: !sesame x\n", 1, None, "unknown tag after '!'"),
        ("A: x\nB: *sesame\n", 2, None, "'*' refers to an anchor"),
        ("A: x\nB: 'sesame\n", 2, None, "while scanning a quoted scalar"),
        ("- sesame\n", 1, None, "expected a mapping of names to strings"),
        ("sesame\n", 1, None, "expected a mapping of names to strings"),
        ("!x sesame\n", 1, None, "unknown tag after '!'"),
    ],
)
def test_mistakes_in_a_file(
    text: str, line: int, key: str | None, message: str, mistake: OneMistake, write: Write, tmp_path: Path
) -> None:
    write(text, "secrets.yaml")
    found = mistake("secrets: secrets.yaml\nhttp: {token: ${A}}\n")
    assert (found.file, found.line, found.key) == (str(tmp_path / "secrets.yaml"), line, key)
    assert message in found.message
    told = f"{found.message} {found.hint}"
    assert "sesame" not in told
    assert "1234567" not in told


def test_mistakes_in_a_mapping(mistake: OneMistake) -> None:
    found = mistake("secrets:\n  A: 1234567\n")
    assert (found.line, found.key, found.message, found.hint) == (
        2,
        "secrets.A",
        "a secret must be a string",
        "quote it",
    )


def test_secrets_must_be_a_file_or_a_mapping(mistake: OneMistake) -> None:
    found = mistake("secrets: [a]\n")
    assert (found.line, found.key, found.message) == (
        1,
        "secrets",
        "expected a path or a mapping, got a list of 1 item",
    )


def test_a_trap_in_a_secret_is_no_warning(load: Load, write: Write) -> None:
    write("PIN: 0123\nWORD: no\n", "secrets.yaml")
    config = load("secrets: secrets.yaml\nsettings: {p: {a: '${PIN}', b: '${WORD}'}}\n")
    assert config.settings == {"p": {"a": "0123", "b": "no"}}
    assert config.warnings == ()


def test_a_short_secret_is_a_finding_of_check_and_not_of_every_command(load: Load, write: Write) -> None:
    kept = write("SHORT: tea-7\nEMPTY: ''\nLONG: long-enough-8\n", "secrets.yaml")
    config = load("secrets: secrets.yaml\nsettings: {p: {a: '${SHORT}', b: '${SHORT}'}}\n")
    assert config.warnings == ()
    with App.open(config=config.path) as app:
        (found,) = (one for one in app.catalog.mistakes if one.key == "SHORT")
    assert (found.file, found.severity) == (str(kept), "warning")
    assert "shorter than 8 characters" in found.message
    assert "tea-7" not in str(found)
