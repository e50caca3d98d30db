"""Which config file is in force: named, of the environment, of this folder or a parent, of the user, or none."""

from pathlib import Path

import pytest

from onetool.config import find
from onetool.config.find import state_home, user_home
from onetool.core.errors import ConfigError


def make(folder: Path) -> Path:
    path = folder / ".onetool" / "onetool.yaml"
    path.parent.mkdir(parents=True)
    path.touch()
    return path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "work" / "project"
    folder.mkdir(parents=True)
    return folder


def test_the_named_file_wins_over_all_others(tmp_path: Path, project: Path, home: Path) -> None:
    named, of_env = tmp_path / "a.yaml", tmp_path / "b.yaml"
    named.touch()
    of_env.touch()
    make(project)
    assert find(named, env={"ONETOOL_CONFIG": str(of_env)}, cwd=project, home=home).config == named
    assert find(None, env={"ONETOOL_CONFIG": str(of_env)}, cwd=project, home=home).config == of_env


def test_a_named_file_is_relative_to_the_working_folder(project: Path, home: Path) -> None:
    (project / "my.yaml").touch()
    assert find("my.yaml", env={}, cwd=project, home=home).config == project / "my.yaml"


def test_a_tilde_is_the_home_folder(project: Path, home: Path) -> None:
    (home / "my.yaml").touch()
    assert find("~/my.yaml", env={}, cwd=project, home=home).config == home / "my.yaml"


def test_the_nearest_folder_wins(project: Path, home: Path) -> None:
    make(home)
    env = {"ONETOOL_TRUST": "1"}
    of_parent = make(project.parent)
    assert find(None, env=env, cwd=project, home=home).config == of_parent
    of_project = make(project)
    assert find(None, env=env, cwd=project, home=home).config == of_project


def test_the_users_own_comes_last(project: Path, home: Path) -> None:
    assert find(None, env={}, cwd=project, home=home).config is None
    own = make(home)
    assert find(None, env={}, cwd=project, home=home).config == own
    assert find(None, env={"HOME": str(home)}, cwd=project).config == own


def test_an_empty_variable_names_nothing(project: Path, home: Path) -> None:
    assert find(None, env={"ONETOOL_CONFIG": ""}, cwd=project, home=home).config is None


@pytest.mark.parametrize(
    ("explicit", "env", "by"),
    [("gone.yaml", {}, "--config"), (None, {"ONETOOL_CONFIG": "gone.yaml"}, "ONETOOL_CONFIG")],
)
def test_a_named_file_that_is_not_there(
    explicit: str | None, env: dict[str, str], by: str, project: Path, home: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        find(explicit, env=env, cwd=project, home=home)
    (mistake,) = caught.value.mistakes
    assert mistake.file == str(project / "gone.yaml")
    assert ("this config file does not exist" if by == "--config" else by) in mistake.message
    assert "onetool init" in (mistake.hint or "")


def test_state_lives_beside_the_config_unless_moved(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path)}
    assert state_home(None, env) == tmp_path / ".onetool"
    assert state_home(tmp_path / "x" / "onetool.yaml", env) == tmp_path / "x"
    assert state_home(tmp_path / "x" / "onetool.yaml", {"ONETOOL_HOME": str(tmp_path / "y")}) == tmp_path / "y"
    assert state_home(None, {**env, "ONETOOL_HOME": "~/z"}) == tmp_path / "z"
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"ONETOOL_HOME is a file: .*/file; set it to a folder"):
        state_home(None, {**env, "ONETOOL_HOME": "~/file/below"})


def test_a_user_without_a_home_has_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    monkeypatch.chdir(tmp_path)
    assert user_home({}) == tmp_path
