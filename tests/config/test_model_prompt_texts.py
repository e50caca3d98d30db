"""The file of prompts: what it may say, where it is, and how much of it models can bear."""

from collections.abc import Callable
from pathlib import Path

import pytest

from onetool.config import Config
from onetool.config.model import PROMPT_TOKENS
from onetool.core.errors import ConfigError, Mistake

Load = Callable[..., Config]
Write = Callable[..., Path]


@pytest.fixture
def refused(load: Load, write: Write) -> Callable[[str], list[Mistake]]:
    """The mistakes in a file of prompts."""

    def refused(text: str) -> list[Mistake]:
        write(text, "prompts.yaml")
        with pytest.raises(ConfigError) as caught:
            load("")
        return list(caught.value.mistakes)

    return refused


def test_it_has_texts_for_the_server_for_run_and_for_packs(load: Load, write: Write, tmp_path: Path) -> None:
    write(
        "instructions: Be kind.\nrun: |\n  Run it.\npacks: {excel: One sheet., word: {instructions: Two.}}\n", "p.yaml"
    )
    config = load("prompts: p.yaml\n")
    assert config.prompts == tmp_path / "p.yaml"
    assert (config.texts.instructions, config.texts.run) == ("Be kind.", "Run it.\n")
    assert {name: of.instructions for name, of in config.texts.packs.items()} == {"excel": "One sheet.", "word": "Two."}


def test_the_one_beside_the_config_needs_no_name(load: Load, write: Write, tmp_path: Path) -> None:
    write("run: Go.\n", "prompts.yaml")
    config = load("")
    assert (config.prompts, config.texts.run) == (tmp_path / "prompts.yaml", "Go.")


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "packs:\n"])
def test_it_may_be_empty(load: Load, write: Write, text: str) -> None:
    write(text, "prompts.yaml")
    assert load("").texts == Config(home=Path()).texts


def test_there_need_be_none(load: Load) -> None:
    assert load("").texts == Config(home=Path()).texts


def test_one_that_is_named_and_not_there_is_told_and_no_more(load: Load, tmp_path: Path) -> None:
    config = load("prompts: later.yaml\n")
    assert config.prompts == tmp_path / "later.yaml"
    [warning] = config.warnings
    assert (warning.key, warning.severity) == ("prompts", "warning")
    assert "later.yaml does not exist" in warning.message


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("runs: x\n", 1, "unknown key 'runs'"),
        ("packs: {excel: 3}\n", 1, "expected"),
        ("run: x\ninstructions: [a]\n", 2, "expected"),
        ("run: [\n", 1, "while parsing a flow node"),
        ("run: ' '\n", 1, "run is empty"),
        (f"run: x\npacks: {{a: ok, b: {'long ' * 1_000}}}\n", 2, "packs.b has about 1,250 tokens; the limit is 1,000"),
    ],
)
def test_what_is_wrong_with_it_is_told_with_its_line(refused, text: str, line: int, said: str) -> None:
    [mistake] = refused(text)
    assert mistake.file is not None
    assert mistake.file.endswith("prompts.yaml")
    assert mistake.line == line
    assert said in mistake.message


def test_what_is_wrong_there_and_in_the_config_is_told_together(write: Write, load: Load) -> None:
    write("runs: x\n", "prompts.yaml")
    with pytest.raises(ConfigError) as caught:
        load("menus: run\n")
    assert len(caught.value.mistakes) == 2


@pytest.mark.parametrize(
    ("field", "most"), [("run", PROMPT_TOKENS["run"]), ("instructions", PROMPT_TOKENS["instructions"])]
)
def test_every_text_has_a_budget(load: Load, write: Write, refused, field: str, most: int) -> None:
    write(f"{field}: {'a' * 4 * most}\n", "prompts.yaml")
    load("")
    [mistake] = refused(f"{field}: {'a' * (4 * most + 1)}\n")
    assert f"the limit is {most}" in mistake.message
    assert refused(f"{field}: {'茶' * (most + 1)}\n")
