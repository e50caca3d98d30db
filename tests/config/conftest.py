"""A config written to a fresh folder, loaded in an environment that is empty unless the test says otherwise."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from onetool.config import Config, load_config
from onetool.core.errors import ConfigError, Mistake


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def write(text: str, name: str = "onetool.yaml") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o600)
        return path

    return write


@pytest.fixture
def load(write: Callable[..., Path]) -> Callable[..., Config]:
    def load(text: str, env: Mapping[str, str] | None = None) -> Config:
        return load_config(write(text), env=env or {})

    return load


@pytest.fixture
def mistakes(write: Callable[..., Path]) -> Callable[..., tuple[Mistake, ...]]:
    def mistakes(text: str, env: Mapping[str, str] | None = None) -> tuple[Mistake, ...]:
        with pytest.raises(ConfigError) as caught:
            load_config(write(text), env=env or {})
        return caught.value.mistakes

    return mistakes


@pytest.fixture
def mistake(mistakes: Callable[..., tuple[Mistake, ...]]) -> Callable[..., Mistake]:
    """The one mistake that there is."""

    def mistake(text: str, env: Mapping[str, str] | None = None) -> Mistake:
        found = mistakes(text, env)
        assert len(found) == 1, "\n".join(map(str, found))
        return found[0]

    return mistake
