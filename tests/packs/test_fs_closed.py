"""What `fs` never opens, whatever its roots are: OneTool's own, keys of the person, and the system's own."""

import os
from pathlib import Path
from typing import Any

import pytest

from onetool.packs import fs
from onetool.sdk import ToolFailure
from onetool.services.file_access import PathRefusedError, Roots, private

pytestmark = [pytest.mark.attack("files"), pytest.mark.usefixtures("way")]

KEPT = (
    ".ssh/id_rsa",
    ".aws/credentials",
    ".gnupg/private-keys-v1.d/k.key",
    ".config/gcloud/credentials.db",
    ".azure/msal_token_cache.json",
    ".kube/config",
    ".docker/config.json",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".git-credentials",
    ".config/gh/hosts.yml",
    ".config/op/config",
    ".local/share/keyrings/login.keyring",
    ".mozilla/firefox/p/logins.json",
    ".config/google-chrome/Default/Login Data",
    "Library/Keychains/login.keychain-db",
    ".password-store/mail.gpg",
    ".onetool/secrets.yaml",
    ".onetool/onetool.yaml",
    ".onetool/sessions/s.json",
)


@pytest.fixture
def home(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The person's home, which somebody has allowed as a whole."""
    for name in KEPT:
        (own_home / name).parent.mkdir(parents=True, exist_ok=True)
        (own_home / name).write_text("KEY")
    (own_home / "work" / ".onetool").mkdir(parents=True)
    (own_home / "work" / ".onetool" / "shared.yaml").write_text("KEY")
    (own_home / "work" / "a.txt").write_text("fine")
    monkeypatch.chdir(own_home)
    configure(monkeypatch, [str(own_home)])
    return own_home


def configure(monkeypatch: pytest.MonkeyPatch, roots: list[str], **more: Any) -> None:
    monkeypatch.setattr("onetool.sdk.get_config", lambda: {"roots": roots, **more})


def denied(function: Any, path: str) -> str:
    with pytest.raises(ToolFailure) as caught:
        function(path)
    assert caught.value.reason == "denied", caught.value
    return str(caught.value)


@pytest.mark.parametrize("name", KEPT)
def test_keys_of_the_person(home: Path, name: str) -> None:
    for path in (name, str(home / name), f"work/../{name}"):
        assert "closed to tools" in denied(fs.read_file, path) or ".onetool" in path
    assert fs.read_file("work/a.txt") == "fine"


@pytest.mark.parametrize("roots", ["/", ".ssh", "~"])
def test_whatever_the_roots_are(home: Path, monkeypatch: pytest.MonkeyPatch, roots: str) -> None:
    folder = {"/": "/", ".ssh": str(home / ".ssh"), "~": str(home)}[roots]
    configure(monkeypatch, [folder])
    denied(fs.read_file, str(home / ".ssh" / "id_rsa"))
    denied(fs.list_dir, str(home / ".ssh"))


def test_folders_of_ours_anywhere(home: Path) -> None:
    assert "belongs to OneTool" in denied(fs.read_file, "work/.onetool/shared.yaml")
    assert "belongs to OneTool" in denied(fs.list_dir, "work/.onetool")
    denied(fs.read_file, "work/.onetool/shared.yaml/../shared.yaml")


def test_by_links(home: Path) -> None:
    (home / "work" / "keys").symlink_to("../.ssh")
    (home / "work" / "key").symlink_to(home / ".ssh" / "id_rsa")
    (home / "work" / "own").symlink_to(".onetool/shared.yaml")
    (home / "work" / "more").symlink_to(home / "work" / ".onetool")
    for path in ("work/keys/id_rsa", "work/key", "work/own", "work/more/shared.yaml", "work/more/../.onetool/x"):
        denied(fs.read_file, path)
    denied(fs.list_dir, "work/keys")
    denied(fs.list_dir, "work/more")


def test_a_link_at_its_place_leads_to_what_is_closed(home: Path) -> None:
    (home / ".aws" / "credentials").unlink()
    (home / ".aws").rmdir()
    (home / "dotfiles" / "aws").mkdir(parents=True)
    (home / "dotfiles" / "aws" / "credentials").write_text("KEY")
    (home / ".aws").symlink_to("dotfiles/aws")
    denied(fs.read_file, ".aws/credentials")
    denied(fs.read_file, "dotfiles/aws/credentials")


def test_what_is_there_is_not_told(home: Path) -> None:
    """Neither by another reason nor by a name that comes near."""
    for path in (".ssh/id_rs", ".ssh/no/such", "work/.onetool/share.yaml", ".ssh/id_rsa/x"):
        words = denied(fs.read_file, path)
        assert "id_rsa'" not in words.replace(path, "")
        assert "shared" not in words
    (home / "work" / "keys").symlink_to("../.ssh")
    assert "id_rsa" not in denied(fs.read_file, "work/keys/id_rs")


def test_a_list_shows_the_name_and_nothing_in_it(home: Path) -> None:
    listed = {entry["path"]: entry for entry in fs.list_dir(".", recursive=True)}
    assert "closed to tools" in listed[".ssh"].get("error", "")
    assert "belongs to OneTool" in listed["work/.onetool"].get("error", "")
    assert "closed to tools" in listed[".netrc"].get("error", "")
    assert listed[".netrc"]["size"] is None
    assert not [path for path in listed if path.endswith(("id_rsa", "shared.yaml", "hosts.yml"))]
    assert listed["work/a.txt"]["size"] == 4


def test_upper_case_is_no_way_in(home: Path) -> None:
    """Where a file system does not tell them apart, it is the same folder."""
    (home / "work" / ".OneTool").mkdir()
    (home / "work" / ".OneTool" / "a").write_text("KEY")
    denied(fs.read_file, "work/.OneTool/a")


def test_what_a_variable_moves_is_closed_there(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "elsewhere" / "gh").mkdir(parents=True)
    (home / "elsewhere" / "gh" / "hosts.yml").write_text("KEY")
    (home / "cluster.yaml").write_text("KEY")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "elsewhere"))
    monkeypatch.setenv("KUBECONFIG", f"{home}/other.yaml{os.pathsep}{home}/cluster.yaml")
    denied(fs.read_file, "elsewhere/gh/hosts.yml")
    denied(fs.read_file, "cluster.yaml")


@pytest.mark.parametrize("path", ["/proc/self/environ", "/proc/self/status", "/sys/kernel", "/dev/null", "/dev/fd/0"])
def test_the_systems_own(home: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    configure(monkeypatch, ["/"])
    denied(fs.read_file, path)
    configure(monkeypatch, [path.rpartition("/")[0]])
    denied(fs.read_file, path)
    denied(fs.list_dir, ".")


def test_without_a_word_of_the_system_the_path_is_resolved(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private, "path_of", lambda _: None)
    (home / "work" / "keys").symlink_to("../.ssh")
    (home / "work" / "own").symlink_to(".onetool")
    denied(fs.read_file, "work/keys/id_rsa")
    denied(fs.read_file, "work/own/shared.yaml")
    assert fs.read_file("work/a.txt") == "fine"


def test_the_same_folder_mounted_elsewhere(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number tells: a path with another name leads to the very folder that is closed."""
    mounted = os.path.realpath(home / "work")
    kept = home / ".ssh"
    real = os.stat

    def stat(path: Any, *args: Any, **options: Any) -> os.stat_result:
        return real(mounted if path == str(kept) else path, *args, **options)

    monkeypatch.setattr(private.os, "stat", stat)
    denied(fs.read_file, "work/a.txt")


def _made(roots: Roots, write: Any, path: str) -> None:
    roots.make_folders(path)
    write(path, b"x")


def test_nothing_is_written_there(home: Path) -> None:
    roots = Roots([str(home)])
    for path in (".ssh/authorized_keys", "work/.onetool/x.html", ".netrc", "new/.onetool/x"):
        for write in (roots.write_file, roots.append):
            with pytest.raises(PathRefusedError) as caught:
                _made(roots, write, path)
            assert caught.value.reason in ("closed", "private")
    assert not (home / ".ssh" / "authorized_keys").exists()
    assert not (home / "new" / ".onetool").exists()


def test_roots_that_lie_elsewhere_than_they_may(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tmp_path / "project"
    (project / "docs").mkdir(parents=True)
    (project / "docs" / "a").write_text("fine")
    (project / "out").symlink_to(home / "work")
    monkeypatch.chdir(project)
    configure(monkeypatch, [str(home / "work"), "out", "docs"], within=[str(project)])
    assert fs.read_file("a") == "fine"
    for path in (str(home / "work" / "a.txt"), "a.txt"):
        with pytest.raises(ToolFailure) as caught:
            fs.read_file(path)
        assert caught.value.reason in ("denied", "not_found")
    assert "~/.onetool/onetool.yaml" in denied(fs.read_file, str(home / "work" / "a.txt"))
    configure(monkeypatch, [str(home / "work")], within=[str(project), str(home)])
    assert fs.read_file("a.txt") == "fine"
