"""Files that include others: what is joined, what is united, and what may be said only once."""

from collections.abc import Callable
from pathlib import Path

from onetool.config import Config
from onetool.core.errors import Mistake

Load = Callable[..., Config]
Write = Callable[..., Path]
OneMistake = Callable[..., Mistake]


def test_lists_are_joined_and_mappings_united(load: Load, write: Write, tmp_path: Path) -> None:
    write(
        "tools: [2]\npacks: [p]\nservers: {b: {command: b}}\ninclude: [c.yaml]\ntopics: [{pattern: y, file: y}]\n",
        "sub/b.yaml",
    )
    write("tools: [3]\naliases: {c: c.c}\nmenu: search\n", "sub/c.yaml")
    write("tools: [4]\nallowedHosts: [d]\nsettings: {d: {x: 1}}\n", "d.yaml")
    config = load(
        "include: [sub/b.yaml, d.yaml]\ntools: [1]\npacks: [p]\nservers: {a: {command: a}}\naliases: {a: a.a}\n"
        "allowedHosts: [a]\nsettings: {a: {x: 1}}\ntopics: [{pattern: x, file: x}]\n"
    )
    assert [tool.definition for tool in config.tools] == [1, 2, 3, 4]
    assert [(Path(tool.file).name, tool.index) for tool in config.tools][2:] == [("c.yaml", 0), ("d.yaml", 0)]
    assert config.packs == (tmp_path / "p", tmp_path / "sub" / "p")
    assert [topic.file for topic in config.topics] == [tmp_path / "x", tmp_path / "sub" / "y"]
    assert [host.host for host in config.allowed_hosts] == ["a", "d"]
    assert list(config.servers) == ["a", "b"]
    assert config.aliases == {"a": "a.a", "c": "c.c"}
    assert config.settings == {"a": {"x": 1}, "d": {"x": 1}}
    assert config.menu == "search"
    assert config.include == (tmp_path / "sub/b.yaml", tmp_path / "sub/c.yaml", tmp_path / "d.yaml")


def test_what_two_files_set_is_refused_and_names_both(
    mistakes: Callable[..., tuple[Mistake, ...]], write: Write
) -> None:
    other = write(
        "\nmenu: run\nhttp: {port: 1}\naliases: {a: x}\nservers: {s: {command: x}}\nsettings: {p: {y: 1}}\n", "b.yaml"
    )
    found = mistakes(
        "include: [b.yaml]\nmenu: run\nhttp: {host: h}\naliases: {a: x}\n"
        "servers: {s: {command: x}}\nsettings: {p: {x: 1}}\n"
    )
    assert [(mistake.file, mistake.line, mistake.key) for mistake in found] == [
        (str(other), 2, "menu"), (str(other), 3, "http"), (str(other), 4, "aliases.a"), (str(other), 5, "servers.s"),
        (str(other), 6, "settings.p"),
    ]  # fmt: skip
    first = other.parent / "onetool.yaml"
    assert found[0].message == f"set in two files, {first}:2 and {other}:2"
    assert {mistake.hint for mistake in found} == {"remove one of them"}


def test_a_circle(mistake: OneMistake, write: Write, tmp_path: Path) -> None:
    write("tools: []\ninclude:\n  - onetool.yaml\n", "b.yaml")
    found = mistake("include: [b.yaml]\n")
    assert (found.file, found.line, found.key) == (str(tmp_path / "b.yaml"), 3, "include[0]")
    assert "circular include" in found.message
    assert "b.yaml" in found.message
    assert found.hint == "remove one of the includes"


def test_a_file_that_includes_itself(mistake: OneMistake) -> None:
    found = mistake("include: [./onetool.yaml]\n")
    assert (found.line, found.key) == (1, "include[0]")


def test_a_file_that_two_others_include_is_read_once(load: Load, write: Write) -> None:
    write("include: [common.yaml]\n", "a.yaml")
    write("include: [./x/../common.yaml]\n", "b.yaml")
    write("menu: search\ntools: [1]\n", "common.yaml")
    config = load("include: [a.yaml, b.yaml]\n")
    assert (config.menu, len(config.tools), len(config.include)) == ("search", 1, 3)


def test_a_missing_file(mistake: OneMistake, tmp_path: Path) -> None:
    found = mistake("menu: run\ninclude:\n  - gone.yaml\n")
    assert (found.file, found.line, found.key) == (str(tmp_path / "onetool.yaml"), 3, "include[0]")
    assert found.message == f"the file {tmp_path / 'gone.yaml'} does not exist"


def test_a_folder_is_told_where_it_is_named(mistake: OneMistake, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    found = mistake("include: [sub]\n")
    assert (found.line, found.key) == (1, "include[0]")
    assert "is a folder" in found.message


def test_mistakes_inside_of_an_included_file_are_told_there(
    mistakes: Callable[..., tuple[Mistake, ...]], write: Write, tmp_path: Path
) -> None:
    write("menu: serch\nfoo: 1\n", "b.yaml")
    write("a: [\n", "c.yaml")
    write("- a\n", "d.yaml")
    found = mistakes("include: [b.yaml, c.yaml, d.yaml]\nfoo: 1\n")
    places = [(Path(mistake.file or "").name, mistake.line, mistake.key) for mistake in found]
    assert places == [
        ("b.yaml", 1, "menu"), ("b.yaml", 2, "foo"), ("c.yaml", 1, None), ("d.yaml", 1, None),
        ("onetool.yaml", 2, "foo"),
    ]  # fmt: skip


def test_ten_files_deep_and_no_deeper(load: Load, mistake: OneMistake, write: Write, tmp_path: Path) -> None:
    for depth in range(1, 11):
        write(f"include: [f{depth + 1}.yaml]\n" if depth < 10 else "menu: direct\n", f"f{depth}.yaml")
    assert load("include: [f1.yaml]\n").menu == "direct"
    write("include: [f11.yaml]\n", "f10.yaml")
    write("menu: direct\n", "f11.yaml")
    found = mistake("include: [f1.yaml]\n")
    assert (found.file, found.line, found.key) == (str(tmp_path / "f10.yaml"), 1, "include[0]")
    assert "more than 10 files deep" in found.message


def test_include_must_be_a_list_of_paths(mistake: OneMistake) -> None:
    found = mistake("include: more.yaml\n")
    assert (found.line, found.key, found.hint) == (1, "include", "write a list: [value]")
    assert mistake("include: [5]\n").key == "include[0]"
    assert mistake('include: ["a\\0b"]\n').message == "this is not a path"


def test_wrong_kinds_in_two_files(mistakes: Callable[..., tuple[Mistake, ...]], write: Write) -> None:
    write("tools: 5\naliases: [x]\nservers:\n", "b.yaml")
    found = mistakes("include: [b.yaml]\ntools: [1]\naliases: {a: b}\nservers: {a: {command: x}}\n")
    assert [(mistake.key, mistake.message) for mistake in found] == [
        ("tools", "expected a list, got the number 5"),
        ("aliases", "expected a mapping, got a list of 1 item"),
    ]


def test_two_keys_in_a_united_mapping(mistake: OneMistake, write: Write) -> None:
    write("aliases: {b: x, b: y}\n", "b.yaml")
    assert mistake("include: [b.yaml]\naliases: {a: b}\n").key == "aliases.b"
