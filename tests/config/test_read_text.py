"""Files that can't be read at all: told plainly, at the place that named them, without a traceback."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from onetool.config import Config, load_config
from onetool.config.read import MAX_BYTES
from onetool.core.errors import ConfigError, Mistake


def mistake_of(path: Path) -> Mistake:
    with pytest.raises(ConfigError) as caught:
        load_config(path, env={})
    (mistake,) = caught.value.mistakes
    assert mistake.file == str(path)
    return mistake


def test_a_byte_order_mark_is_fine(tmp_path: Path) -> None:
    path = tmp_path / "onetool.yaml"
    path.write_bytes(b"\xef\xbb\xbfmenu: search\n")
    assert load_config(path, env={}).menu == "search"


def test_not_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "onetool.yaml"
    path.write_bytes("menu: run\n# caf\xe9\n".encode("latin-1"))
    mistake = mistake_of(path)
    assert (mistake.line, mistake.message, mistake.hint) == (2, "the file is not UTF-8 text", "save it as UTF-8")


def test_a_character_that_yaml_has_not(write: Callable[..., Path]) -> None:
    mistake = mistake_of(write("menu: run\nab: \x07\n"))
    assert (mistake.line, mistake.message) == (2, "the character U+0007 in column 5 is not allowed in YAML")
    assert mistake.hint


def test_a_folder(tmp_path: Path) -> None:
    assert "is a folder" in mistake_of(tmp_path).message


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes here")
def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    assert "not a regular file" in mistake_of(tmp_path / "pipe.yaml").message


def test_a_missing_file(tmp_path: Path) -> None:
    assert "does not exist" in mistake_of(tmp_path / "gone.yaml").message
    (tmp_path / "file").touch()
    assert mistake_of(tmp_path / "file" / "onetool.yaml").message


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (PermissionError(13, "Permission denied"), "no permission"),
        (OSError(5, "Input/output error"), "Input/output error"),
    ],
)
def test_a_file_that_the_system_refuses(
    error: OSError, message: str, write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write("menu: run\n")

    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr(Path, "open", refuse)  # a real mode would not stop root, who runs tests in containers
    assert message in mistake_of(path).message


def test_a_file_that_is_too_large(write: Callable[..., Path]) -> None:
    assert load_config(write("#" * (MAX_BYTES - 1) + "\n"), env={}).menu == "run"
    assert "larger than 4 MiB" in mistake_of(write("#" * MAX_BYTES + "\n")).message


def test_an_empty_file_is_the_defaults(load: Callable[..., Config]) -> None:
    for text in ("", "# nothing yet\n", "---\n", "{}\n", "tools:\nservers:\nhttp:\n"):
        config = load(text)
        assert (config.menu, config.tools, config.servers, config.http.port) == ("run", (), {}, 8765)


def test_syntax_errors_become_one_mistake(mistake: Callable[..., Mistake], tmp_path: Path) -> None:
    found = mistake("menu: run\nhttp:\n\tport: 1\n")
    assert (found.file, found.line) == (str(tmp_path / "onetool.yaml"), 3)
    assert (
        found.message == "while scanning for the next token: found character that cannot start any token, in column 1"
    )
    assert found.hint == "indent with spaces instead of a tab"


@pytest.mark.parametrize(
    ("text", "got"), [("- a\n", "a list of 1 item"), ("hello\n", "the string 'hello'"), ("5\n", "the number 5")]
)
def test_a_config_is_a_mapping(text: str, got: str, mistake: Callable[..., Mistake]) -> None:
    assert mistake(text).message == f"expected a mapping, got {got}"
