"""Packs: where they are found, how they are named, what happens to broken, heavy and slow ones."""

import sys

import pytest
from helpers import BUILT_IN_PACKS, CHECKPOINTS, run

from onetool import App
from onetool.sources.packs import PackSource


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "packs").mkdir()
    return tmp_path / "packs"


def write(folder, name, text):
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def load(*paths):
    return PackSource(paths).load()


def names(catalogue):
    return [spec.name for spec in catalogue.tools if spec.pack not in BUILT_IN_PACKS]


def test_a_pack_is_named_by_its_file_or_by_itself(folder):
    write(folder, "plain.py", "def f(): 'F.'\n")
    write(folder, "other.py", "pack = 'named'\ndef f(): 'F.'\n")
    assert names(load(folder)) == ["named.f", "plain.f"]


def test_public_functions_of_its_own_are_tools_unless_all_says_otherwise(folder):
    write(
        folder, "a.py", "from os.path import join\nimport json\nx = 1\ndef f(): 'F.'\ndef _g(): 'G.'\nclass C: pass\n"
    )
    write(
        folder,
        "b.py",
        "from os.path import join\n__all__ = ['_g', 'join', 'x']\nx = 1\ndef f(): 'F.'\ndef _g(): 'G.'\n",
    )
    assert names(load(folder)) == ["a.f", "b._g", "b.join"]


def test_a_package_is_a_pack(folder):
    write(folder, "big/__init__.py", "from .part import f\n__all__ = ['f']\n")
    write(folder, "big/part.py", "from . import help\ndef f(): 'F.'; return help.x\n")
    write(folder, "big/help.py", "x = 1\n")
    assert names(load(folder)) == ["big.f"]
    assert names(load(folder / "big")) == ["big.f"]


def test_private_files_tests_and_folders_without_modules_are_no_packs(folder):
    for name in ("_private.py", ".hidden.py", "test_it.py", "notes.txt", "data/x.json"):
        write(folder, name, "def f(): 'F.'\n")
    assert names(load(folder)) == []


@pytest.mark.parametrize(
    ("text", "is_pack"),
    [
        ("from onetool.sdk import tool\n\n@tool\ndef f(): 'F.'\n", True),
        ("from onetool import sdk\n\n@sdk.tool(read_only=True)\nasync def f(): 'F.'\n", True),
        ("import pytest\n\n@pytest.fixture\ndef f(): 'F.'\n", False),
        ("PACK = '@tool'\ndef f(): 'F.'\n\ndef test_f():\n    @tool\n    def g(): 'G.'\n", False),
        ("import nonexistent_library\n", False),
        ("def broken(:\n", False),
        ("@tool\ndef broken(:\n", False),
    ],
)
def test_a_test_is_a_pack_if_it_declares_a_tool(folder, text, is_pack):
    write(folder, "test_it.py", text)
    write(folder, "test_package/__init__.py", text)
    catalogue = load(folder)
    assert (names(catalogue), catalogue.mistakes) == (["test_it.f", "test_package.f"] if is_pack else [], ())


def test_a_test_that_the_config_names_is_a_pack(folder):
    file = write(folder, "test_it.py", "def f(): 'F.'\n")
    assert names(load(file)) == ["test_it.f"]


def test_a_single_file_may_be_named(folder):
    file = write(folder, "one.py", "def f(): 'F.'\n")
    write(folder, "two.py", "def f(): 'F.'\n")
    assert names(load(file)) == ["one.f"]


def test_a_missing_path_is_told(tmp_path):
    (mistake,) = load(tmp_path / "nowhere").mistakes
    assert "no such file" in mistake.message
    assert mistake.file == str(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("x = 1\nimport nonexistent_library\n", 2, "nonexistent_library"),
        ("x = 1\n\nraise SystemExit(3)\n", 3, "SystemExit: 3"),
        ("def broken(:\n", 1, "SyntaxError"),
        ("x = 1\ny = x / 0\n", 2, "division by zero"),
        ("__all__ = ['missing']\n", None, "missing"),
        ("pack = 'two.words'\ndef f(): 'F.'\n", None, "without dots"),
        ("raise KeyboardInterrupt\n", 1, "KeyboardInterrupt"),
    ],
)
def test_a_pack_that_fails_is_told_and_the_others_work(folder, text, line, told):
    bad = write(folder, "bad.py", text)
    write(folder, "good.py", "def f(): 'F.'\n")
    catalogue = load(folder)
    assert names(catalogue) == ["good.f"]
    (mistake,) = catalogue.mistakes
    assert (mistake.file, mistake.line) == (str(bad), line)
    assert told in mistake.message


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("import nonexistent_library", f"for the Python that runs OneTool: {sys.executable}"),
        ("from onetool import tool", "from onetool.sdk import tool"),
    ],
)
def test_a_failed_import_says_what_to_do(folder, text, hint):
    write(folder, "bad.py", text)
    (mistake,) = load(folder).mistakes
    assert mistake.hint.endswith(hint)


def test_no_library_is_missing_where_onetool_has_no_such_module(folder):
    write(folder, "bad.py", "import onetool.nonexistent")
    (mistake,) = load(folder).mistakes
    assert mistake.hint is None


def test_a_function_that_cannot_be_described_spoils_itself_alone(folder):
    text = "import socket\ndef good(): 'G.'\ndef bad(s: 'Nonsense'): 'B.'\ndef worse(s: socket.socket): 'W.'\n"
    file = write(folder, "a.py", text)
    catalogue = load(folder)
    assert names(catalogue) == ["a.good"]
    assert [(m.file, m.line, m.key) for m in catalogue.mistakes] == [(str(file), 3, "a.bad"), (str(file), 4, "a.worse")]
    assert catalogue.mistakes[0].message.startswith("parameter 's': Nonsense is not defined: import or define it")
    assert catalogue.mistakes[1].message.startswith("parameter 's': socket can't be represented in JSON: use ")


def test_a_mistake_of_syntax_is_placed_once(folder):
    write(folder, "own.py", "x = 1\ndef broken(:\n")
    write(folder / "other", "__init__.py", "from .part import f\n")
    write(folder / "other", "part.py", "def broken(:\n")
    other, own = load(folder).mistakes
    assert (own.line, own.message) == (2, "SyntaxError: invalid syntax")
    assert (other.line, other.message) == (1, "SyntaxError: invalid syntax (part.py, line 1)")


def test_a_function_is_called_by_its_name_in_the_module(folder):
    write(folder, "a.py", "def f(): 'F.'\ng = lambda x: x\n")
    assert names(load(folder)) == ["a.f", "a.g"]


def test_a_cached_function_is_a_tool_too(folder, tmp_path):
    text = "import functools\n@functools.cache\ndef double(n: int) -> int:\n    'Twice as much.'\n    return 2 * n\n"
    file = write(folder, "a.py", text)
    write(tmp_path, "onetool.yaml", "packs: [packs]\n")
    app = App.open(tmp_path / "onetool.yaml")
    assert app.mistakes == ()
    assert run(app.runtime.executor, "a.double", n=4).data == 8
    assert app.catalog.registry.get("a.double").defined_in == f"{file}:2"
    assert run(app.runtime.executor, "a.double", n="x").error.code == "invalid_args"


def test_the_same_pack_name_twice_is_refused_and_both_are_named(folder):
    write(folder, "a.py", "pack = 'same'\ndef f(): 'First.'\n")
    write(folder, "b.py", "pack = 'same'\ndef g(): 'Second.'\n")
    write(folder, "time.py", "def f(): 'Not the built-in one.'\n")
    catalogue = load(folder)
    assert names(catalogue) == ["same.f"]
    first, second = (str(mistake) for mistake in catalogue.mistakes)
    assert "a.py" in first
    assert "b.py" in first
    assert "built in" in second
    assert "time.py" in second


def test_a_pack_called_ot_is_refused_as_a_whole(tmp_path):
    write(tmp_path, "packs/ot.py", "def hello(): 'Not the built-in one.'\n")
    with App.open(write(tmp_path, "onetool.yaml", "packs: [packs]\n")) as app:
        assert "duplicate pack name 'ot': the first one stays (built in)" in str(*app.mistakes)
        assert not run(app.runtime.executor, "ot.hello").ok


def test_of_two_installed_packs_with_one_name_the_first_stays(tmp_path, monkeypatch):
    for name in ("zebra", "apple", "mango"):
        write(tmp_path, f"{name}.py", f"def f(): 'From {name}.'\n")
        write(tmp_path, f"{name}-1.0.dist-info/entry_points.txt", f"[onetool.packs]\nfruit = {name}\n")
    monkeypatch.syspath_prepend(tmp_path)
    catalogue = load()
    assert [spec.description for spec in catalogue.tools if spec.pack == "fruit"] == ["From apple."]
    assert ["apple-1.0.dist-info" in str(mistake) for mistake in catalogue.mistakes] == [True, True]


# Installed distributions


def test_installed_packs_are_found_by_their_entry_point(tmp_path, monkeypatch):
    site = tmp_path / "site"
    write(site, "acme_tools/__init__.py", "pack = 'acme'\ndef f(): 'F.'\n")
    write(site, "acme_tools-1.0.dist-info/METADATA", "Name: acme-tools\n")
    write(
        site,
        "acme_tools-1.0.dist-info/entry_points.txt",
        "[console_scripts]\nx = y:z\n[onetool.packs]\nacme = acme_tools\n",
    )
    write(site, "other-1.0.dist-info/entry_points.txt", "[console_scripts]\nonetool.packs = y:z\n")
    write(site, "broken-1.0.dist-info/entry_points.txt", "onetool.packs ][")
    monkeypatch.syspath_prepend(site)
    catalogue = load()
    assert names(catalogue) == ["acme.f"]
    assert catalogue.mistakes == ()


def test_an_installed_pack_that_fails_is_told(tmp_path, monkeypatch):
    site = tmp_path / "site"
    write(site, "bad_tools-1.0.dist-info/entry_points.txt", "[onetool.packs]\nbad = bad_tools_that_are_not_there\n")
    monkeypatch.syspath_prepend(site)
    (mistake,) = load().mistakes
    assert "bad_tools-1.0.dist-info" in mistake.file
    assert "bad_tools_that_are_not_there" in mistake.message


# Heavy and slow ones


HEAVY = '''
"""A pack over a library that takes long to import."""
from datetime import date
from enum import Enum
import heavy_library
from onetool.sdk import tool

pack = "heavy"
LIMIT = 3
client = heavy_library.Client()

class Colour(Enum):
    RED = "red"

@tool(tags=["x"])
def work(day: date, colour: Colour = Colour.RED, limit: int = LIMIT) -> str:
    """Work hard."""
    return f"{heavy_library.VALUE} {day.year} {colour.name} {limit}"

async def work_async() -> str:
    """Work hard, later."""
    return heavy_library.VALUE
'''


def test_a_heavy_pack_is_listed_without_being_imported_and_works_when_called(folder, tmp_path, monkeypatch):
    library = write(tmp_path, "site/heavy_library.py", "VALUE = 'done'\nclass Client: pass\n")
    monkeypatch.syspath_prepend(library.parent)
    write(folder, "heavy.py", HEAVY)
    write(tmp_path, "onetool.yaml", "packs: [packs]\n")
    app = App.open(tmp_path / "onetool.yaml")
    spec = app.catalog.registry.get("heavy.work")
    assert "heavy_library" not in sys.modules
    assert spec.parameters["properties"]["limit"]["default"] == 3
    assert spec.tags == ("x",)
    assert run(app.runtime.executor, "heavy.work", day="2026-01-02").data == "done 2026 RED 3"
    assert "heavy_library" in sys.modules
    assert run(app.runtime.executor, "heavy.work_async").data == "done"
    sys.modules.pop("heavy_library")


def test_a_heavy_pack_whose_library_breaks_fails_when_it_is_called(folder, tmp_path, monkeypatch):
    library = write(tmp_path, "site/heavy_library.py", "raise RuntimeError('license expired')\n")
    monkeypatch.syspath_prepend(library.parent)
    write(folder, "heavy.py", HEAVY)
    write(tmp_path, "onetool.yaml", "packs: [packs]\n")
    error = run(App.open(tmp_path / "onetool.yaml").runtime.executor, "heavy.work", day="2026-01-02").error
    assert error.reason == "source_unavailable"
    assert "heavy.py:5" in error.message
    assert "license expired" in error.message


def test_what_the_source_does_not_tell_is_imported(folder, tmp_path, monkeypatch):
    library = write(
        tmp_path,
        "site/odd_library.py",
        "def change(f):\n    def g(x: int): 'Changed.'\n    g.__module__ = f.__module__\n    return g\n",
    )
    monkeypatch.syspath_prepend(library.parent)
    write(folder, "odd.py", "import odd_library\n@odd_library.change\ndef f(): 'F.'\n")
    (spec,) = [spec for spec in load(folder).tools if spec.pack == "odd"]
    assert spec.description == "Changed."
    sys.modules.pop("odd_library")


def test_a_slow_pack_does_not_delay_the_others(folder, tmp_path):
    slow = "from helpers import CHECKPOINTS\nCHECKPOINTS['import'].pause_thread()\n"
    write(folder, "slow.py", f"{slow}def f(n: int = 1) -> int:\n    'F.'\n    return n\n")
    write(folder, "quick.py", "def f(): 'F.'; return 'quick'\n")
    write(tmp_path, "onetool.yaml", "packs: [packs]\n")
    app = App.open(tmp_path / "onetool.yaml")
    assert run(app.runtime.executor, "quick.f").ok
    CHECKPOINTS["import"].open()
    assert run(app.runtime.executor, "slow.f", n=4).data == 4  # waits for the import


# Reload


def test_an_edited_pack_is_picked_up(folder, tmp_path):
    file = write(folder, "a.py", "def f(): 'F.'; return 1\n")
    write(tmp_path, "onetool.yaml", "packs: [packs]\n")
    app = App.open(tmp_path / "onetool.yaml")
    for number in range(2, 6):  # quick edits of the same size
        file.write_text(f"def f(): 'F.'; return {number}\n")
        app.reload()
        assert run(app.runtime.executor, "a.f").data == number
    write(folder, "b.py", "def g(): 'G.'\n")
    file.unlink()
    app.reload()
    assert [spec.name for spec in app.tools()][-1] == "b.g"
    assert app.catalog.registry.get("a.f") is None


def test_a_package_is_reloaded_with_its_parts(folder, tmp_path):
    write(folder, "big/__init__.py", "from .part import f\n__all__ = ['f']\n")
    part = write(folder, "big/part.py", "def f(): 'F.'; return 1\n")
    write(tmp_path, "onetool.yaml", "packs: [packs]\n")
    app = App.open(tmp_path / "onetool.yaml")
    part.write_text("def f(): 'F.'; return 'edited'\n")
    app.reload()
    assert run(app.runtime.executor, "big.f").data == "edited"


def test_other_threads_import_while_packs_are_loaded(folder, monkeypatch):
    class Name(str):  # where another thread would come in between
        def startswith(self, *args):
            monkeypatch.setitem(sys.modules, f"{__name__}.another", sys)
            return super().startswith(*args)

    write(folder, "a.py", "def f(): 'F.'\n")
    monkeypatch.setitem(sys.modules, Name(f"{__name__}.one"), sys)
    catalogue = load(folder)
    assert (catalogue.mistakes, names(catalogue)) == ((), ["a.f"])


def test_a_broken_config_leaves_the_old_one_in_force(folder, tmp_path):
    from onetool.core.errors import ConfigError

    write(folder, "a.py", "def f(): 'F.'; return 1\n")
    config = write(tmp_path, "onetool.yaml", "packs: [packs]\n")
    app = App.open(config)
    config.write_text("paks: [packs]\n")
    with pytest.raises(ConfigError, match="did you mean packs"):
        app.reload()
    assert run(app.runtime.executor, "a.f").data == 1
    assert app.config.packs


# Packs that do not behave


@pytest.mark.parametrize(
    "text",
    [
        "import functools, time\n@functools.cache\ndef f(): 'F.'\nwhile True: time.sleep(1)\n",
        "import pytest, time\nclass A:\n    while True: time.sleep(1)\ndef f(): 'F.'\n",
    ],
    ids=["not readable", "a class body"],
)
def test_a_pack_that_never_ends_to_import_is_told(folder, monkeypatch, text):
    from onetool.sources import packs
    from onetool.sources.packs import reading

    monkeypatch.setattr(packs, "IMPORT_TIMEOUT", 0.5)
    monkeypatch.setattr(reading, "OUTLINE_SECONDS", 0.5)
    write(folder, "hangs.py", text)
    write(folder, "quick.py", "def f(): 'F.'\n")
    catalogue = load(folder)  # and not for ever
    assert names(catalogue) == ["quick.f"]
    assert "still importing" in catalogue.mistakes[0].message


def test_pipes_and_loops_of_links_are_no_packs(folder):
    import os

    os.mkfifo(folder / "pipe.py")
    (folder / "loop.py").symlink_to(".")
    (folder / "loop2.py").symlink_to(".")
    assert names(load(folder)) == []


def test_two_packages_of_one_name_keep_their_own_parts(tmp_path):
    for name in ("one", "two"):
        write(
            tmp_path,
            f"{name}/util/__init__.py",
            f"pack = {name!r}\ndef who():\n    'W.'\n    from . import part\n    return part.NAME\n",
        )
        write(tmp_path, f"{name}/util/part.py", f"NAME = {name!r}\n")
    write(tmp_path, "onetool.yaml", "packs: [one/util, two/util]\n")
    executor = App.open(tmp_path / "onetool.yaml").runtime.executor
    assert [run(executor, f"{name}.who").data for name in ("one", "two")] == ["one", "two"]


def test_many_first_calls_of_a_lazy_pack_at_once(folder, tmp_path, monkeypatch):
    import asyncio

    from onetool import ToolCall

    library = write(tmp_path, "site/slow_library.py", "import time\ntime.sleep(0.2)\n")
    monkeypatch.syspath_prepend(library.parent)
    write(
        folder,
        "lazy.py",
        "import slow_library\ndef f():\n    'F.'\n    return 1\nasync def g():\n    'G.'\n    return 2\n",
    )
    write(tmp_path, "onetool.yaml", "packs: [packs]\n")
    app = App.open(tmp_path / "onetool.yaml")

    async def all_at_once():
        return await asyncio.gather(
            *(app.call(ToolCall(str(n), name)) for n in range(10) for name in ("lazy.f", "lazy.g"))
        )

    assert {result.data for result in asyncio.run(all_at_once())} == {1, 2}
    sys.modules.pop("slow_library")


def test_a_file_named_by_itself_and_by_its_folder_is_one_pack(folder):
    file = write(folder, "one.py", "def f(): 'F.'\n")
    catalogue = load(folder, file)
    assert (names(catalogue), catalogue.mistakes) == (["one.f"], ())


@pytest.mark.parametrize(
    "more",
    ["__all__ = ['f']\n__all__ += ['g']\n", "if True:\n    def g(): 'G.'\n", "for _ in '1':\n    def g(): 'G.'\n"],
)
def test_a_heavy_pack_that_could_do_anything_is_imported(folder, tmp_path, monkeypatch, more):
    monkeypatch.syspath_prepend(write(tmp_path, "site/some_library.py", "").parent)
    write(folder, "a.py", f"import some_library\ndef f(): 'F.'\ndef g(): 'G.'\n{more}")
    assert set(names(load(folder))) == {"a.f", "a.g"}
    sys.modules.pop("some_library")
