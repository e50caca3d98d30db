"""Whatever the loader would run, `trust` has seen: both find packs in the same way."""

import importlib.util
import json
import os
import py_compile
import sys

import pytest
from helpers import trusted

from onetool.app import App
from onetool.config.find import find
from onetool.config.pin import MAX_FILES, see

pytestmark = pytest.mark.attack("cloned repositories")

EVIL = "from pathlib import Path\nPath({!r}).write_text('imported')\ndef hello() -> str:\n    'Hi.'\n    return 'hi'\n"
MILD = "def hello() -> str:\n    'Hi.'\n    return 'hi'\n"


class Project:
    """A folder of ours that was trusted, and somebody else's beside it."""

    def __init__(self, folder, home):
        self.folder, self.home = folder, home
        self.flag = folder.parent / "flag"
        self.own = folder / ".onetool"
        (self.own / "packs").mkdir(parents=True)
        self.elsewhere = folder.parent / "elsewhere"
        self.elsewhere.mkdir()
        self.configure()

    def configure(self, **keys):
        (self.own / "onetool.yaml").write_text(json.dumps(keys))

    def trust(self, packs=False):
        trusted(self.folder, packs=packs)
        assert self.is_used()

    def is_used(self):
        """Whether it is, as a command or a library would say; both load what lies there then."""
        return find(cwd=self.folder).untrusted is None

    def loaded(self):
        """Names of what the loader finds; it runs, too."""
        with App.open(find(cwd=self.folder)) as app:
            return {name for name in app.catalog.registry.names() if name.endswith(".hello")}

    def evil(self, file):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(EVIL.format(str(self.flag)))
        return file

    def strict(self):
        (self.home / ".onetool").mkdir(mode=0o700, exist_ok=True)
        (self.home / ".onetool" / "onetool.yaml").write_text("trust: strict\n")

    def shows(self):
        return "\n".join(see(self.own, self.own / "onetool.yaml").described())


@pytest.fixture
def project(tmp_path, own_home):
    return Project(tmp_path / "project", own_home)


def test_a_linked_package_is_seen_and_where_it_lies(project):
    project.evil(project.elsewhere / "evil" / "__init__.py")
    project.trust()
    (project.own / "packs" / "evil").symlink_to(project.elsewhere / "evil")
    assert not project.is_used()
    assert f"{project.elsewhere / 'evil'} (outside of the project)" in project.shows()
    trusted(project.folder, packs=False)
    assert project.loaded() == {"evil.hello"}


def test_a_linked_package_beside_other_packs_waits_too(project):
    (project.own / "packs" / "mild.py").write_text(MILD)
    project.evil(project.elsewhere / "evil" / "__init__.py")
    project.trust()
    (project.own / "packs" / "evil").symlink_to(project.elsewhere / "evil")
    assert not project.is_used()


def test_a_link_inside_of_a_package_is_seen(project):
    package = project.own / "packs" / "mild"
    package.mkdir()
    (package / "__init__.py").write_text("from .sub import hello\n")
    (package / "sub.py").write_text(MILD)
    project.evil(project.elsewhere / "sub.py")
    project.trust()
    (package / "sub.py").unlink()
    (package / "sub.py").symlink_to(project.elsewhere / "sub.py")
    assert not project.is_used()


def test_a_link_in_a_named_folder_is_seen(project):
    lib = project.folder / "lib"
    lib.mkdir()
    (lib / "mild.py").write_text(MILD)
    project.evil(project.elsewhere / "evil" / "__init__.py")
    project.configure(packs=["../lib"])
    project.trust()
    (lib / "evil").symlink_to(project.elsewhere / "evil")
    assert not project.is_used()


def test_a_circle_of_links_ends(project):
    package = project.own / "packs" / "mild"
    package.mkdir()
    (package / "__init__.py").write_text(MILD)
    (package / "again").symlink_to(package)
    project.trust()
    assert project.loaded() == {"mild.hello"}


def test_a_folder_that_can_not_be_listed_hides_nothing_else(project, monkeypatch):
    package = project.own / "packs" / "mild"
    (package / "a").mkdir(parents=True)
    (package / "__init__.py").write_text("from .z import hello\n")
    project.evil(project.elsewhere / "z.py")
    (package / "z.py").write_text(MILD)
    listed = os.listdir

    def refused(path="."):
        if str(path).endswith("/mild/a"):
            raise PermissionError
        return listed(path)

    monkeypatch.setattr(os, "listdir", refused)
    project.trust()
    (package / "z.py").unlink()
    (package / "z.py").symlink_to(project.elsewhere / "z.py")
    assert not project.is_used()


@pytest.mark.parametrize("named", ["../lib/__pycache__/evil.py", "../lib/__pycache__"])
def test_a_folder_of_that_name_hides_nothing(named, project):
    project.configure(packs=[named])
    project.trust()
    project.evil(project.folder / "lib" / "__pycache__" / "evil.py")
    assert not project.is_used()
    assert "Python of packs" in project.shows()


def test_nor_does_one_above_the_project(tmp_path, own_home):
    project = Project(tmp_path / "__pycache__" / "project", own_home)
    project.trust()
    project.evil(project.own / "packs" / "evil.py")
    assert not project.is_used()


@pytest.mark.parametrize("kept", [True, False])
def test_the_first_pack_of_a_named_folder_waits(kept, project):
    """Also where other packs are: nobody has seen that there are some in this folder."""
    if kept:
        (project.own / "packs" / "mild.py").write_text(MILD)
    else:
        (project.own / "packs").rmdir()
    (project.folder / "lib").mkdir()
    project.configure(packs=["../lib"])
    project.trust()
    project.evil(project.folder / "lib" / "evil.py")
    assert not project.is_used()


def test_nor_is_one_forgotten_that_was_named_later(project):
    (project.folder / "lib").mkdir()
    (project.own / "packs" / "mild.py").write_text(MILD)
    project.trust()
    project.configure(packs=["../lib"])
    assert not project.is_used()
    project.trust()
    project.evil(project.folder / "lib" / "evil.py")
    assert not project.is_used()


def test_a_folder_of_packs_that_becomes_a_link_waits(project):
    (project.own / "packs" / "mild.py").write_text(MILD)
    project.evil(project.elsewhere / "evil.py")
    project.trust()
    (project.own / "packs" / "mild.py").unlink()
    (project.own / "packs").rmdir()
    (project.own / "packs").symlink_to(project.elsewhere)
    assert not project.is_used()
    trusted(project.folder, packs=False)
    other = project.folder.parent / "other"
    project.evil(other / "evil.py")
    (project.own / "packs").unlink()
    (project.own / "packs").symlink_to(other)  # elsewhere again, but not where it was
    assert not project.is_used()


def test_a_path_leads_where_the_system_says(project):
    """`link/..` is above the link's target, not above the link."""
    (project.elsewhere / "deep").mkdir()
    project.evil(project.elsewhere / "lib" / "evil.py")
    (project.folder / "link").symlink_to(project.elsewhere / "deep")
    project.configure(packs=["../link/../lib"])
    assert f"{project.elsewhere / 'lib'} (outside of the project)" in project.shows()


def test_own_packs_of_who_made_the_folder_do_not_wait(project):
    project.trust(packs=True)
    (project.own / "packs" / "mild.py").write_text(MILD)
    assert project.is_used()


# Strict


def test_strict_sees_a_linked_package(project):
    (project.folder / "lib" / "evil").mkdir(parents=True)
    inside = project.folder / "lib" / "evil" / "__init__.py"
    inside.write_text(MILD)
    (project.own / "packs" / "evil").symlink_to(project.folder / "lib" / "evil")
    project.strict()
    project.trust()
    project.evil(inside)
    assert not project.is_used()


@pytest.mark.long
def test_more_files_than_can_be_looked_at_wait(project):
    (project.own / "packs" / "mild.py").write_text(MILD)
    project.trust()
    for number in range(MAX_FILES + 1):
        (project.own / "packs" / f"a{number}.txt").touch()
    project.evil(project.own / "packs" / "zz.py")
    assert not project.is_used()
    trusted(project.folder, packs=False)
    assert project.is_used()  # who has seen that there are so many
    project.strict()
    assert not project.is_used()  # but not who wants to have seen each


def test_strict_sees_what_a_large_file_becomes(project):
    file = project.own / "packs" / "large.py"
    file.write_bytes(MILD.encode() + b"#" * 5_000_000 + b"\n")
    before = file.stat()
    project.strict()
    project.trust()
    file.write_bytes(EVIL.format(str(project.flag)).encode().ljust(before.st_size, b"\n"))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert not project.is_used()


def compiled_over(source, evil):
    """The bytecode that Python takes for `source` without looking at it again."""
    cache = importlib.util.cache_from_source(str(source))
    py_compile.compile(str(evil), cfile=cache, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)


@pytest.mark.parametrize("part", ["mild.py", "mild/__init__.py", "mild/sub.py", "mild/deep/sub.py"])
def test_bytecode_of_a_project_is_not_run(part, project):
    packs = project.own / "packs"
    if part == "mild.py":
        (packs / part).write_text(MILD)
    else:
        (packs / "mild" / "deep").mkdir(parents=True)
        (packs / "mild" / "__init__.py").write_text("from .sub import hello as hello\nfrom .deep import sub\n" + MILD)
        (packs / "mild" / "sub.py").write_text(MILD)
        (packs / "mild" / "deep" / "sub.py").write_text(MILD)
    project.strict()
    project.trust()
    compiled_over(packs / part, project.evil(project.elsewhere / "evil.py"))
    sys.path_importer_cache.clear()
    assert project.loaded() == {"mild.hello"}
    assert not project.flag.exists()


def test_a_module_that_only_looks_like_bytecode_is_pinned(project):
    """`from .__pycache__ import evil` is a way to load one."""
    package = project.own / "packs" / "mild"
    package.mkdir()
    (package / "__init__.py").write_text("from importlib import import_module\n" + MILD)
    project.strict()
    project.trust()
    project.evil(package / "__pycache__" / "evil.py")
    assert not project.is_used()
