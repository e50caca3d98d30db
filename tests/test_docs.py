"""What the docs say is true: every command and key is in them, every link leads somewhere, and the examples run."""

import ast
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import get_args

import msgspec
import pytest
import yaml
from helpers import cli, each

from onetool.ask.providers import adapter, ranked_providers
from onetool.config.model import Declared, Keys
from onetool.core.model_providers import PROVIDERS, key_name
from onetool.sources.packs import BUILTIN

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]


def text_of(name):
    return (ROOT / name).read_text()


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", text_of(page), re.DOTALL)


@each("page", PAGES)
def test_links_lead_somewhere(page):
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", page.read_text()):
        if not target.startswith("http"):
            file = page.parent / target if target else page
            assert file.exists(), target
            assert not anchor or anchor in anchors(file), (target, anchor)
            if page.is_relative_to(ROOT / "docs") and file.suffix == ".md":
                assert file.resolve().is_relative_to(ROOT / "docs"), f"{target} is not part of the site (make docs)"


@cache
def anchors(file):
    """Return the names that headings of a page have in links."""
    text = re.sub(r"^```.*?^```", "", file.read_text(), flags=re.DOTALL | re.MULTILINE)
    return {anchor_of(title) for title in re.findall(r"^#+ (.+)", text, re.MULTILINE)}


def anchor_of(title):
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def commands(group, prefix="onetool"):
    import click

    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, f"{prefix} {name}")
        else:
            yield f"{prefix} {name}"


def test_every_command_is_documented():
    from onetool.interfaces.cli import cli as root

    listed = list(commands(root))
    assert len(listed) >= 8
    missing = [command for command in listed if f"`{command}" not in text_of("docs/reference/command-line.md")]
    assert not missing, "describe them in docs/reference/command-line.md"


def test_every_model_provider_is_documented():
    """The table of the page has them in the order in which their keys are looked for, then those that need none."""
    rows = re.findall(r"^\| `(\w+)` \| `(\w+_API_KEY)`", text_of("docs/guide/ask.md"), re.MULTILINE)
    order = [*ranked_providers(), *(name for name in PROVIDERS if adapter(name).rank is None)]
    assert rows == [(name, key_name(name)) for name in order], (
        "give it a row in the table of docs/guide/ask.md, by its rank"
    )


def config_keys(struct, prefix=""):
    """Yield every key of a config struct, and of the structs inside of it, as `http.port`."""
    for field in msgspec.structs.fields(struct):
        name = f"{prefix}{field.encode_name}"
        yield name
        for inner in structs_in(field.type):
            yield from config_keys(inner, f"{name}.")


def structs_in(kind):
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return {kind} - {Declared}  # an entry of `tools` as it is written: not keys, but where it stands
    return {found for argument in get_args(kind) for found in structs_in(argument)}


def section(page, anchor):
    """Return the part of a page, named as from docs/reference, below the heading that a link to `anchor` leads to."""
    parts = re.split(r"^#+ (.+)\n", (ROOT / "docs" / "reference" / page).read_text(), flags=re.MULTILINE)
    slugs = [anchor_of(title) for title in parts[1::2]]
    return parts[2 * slugs.index(anchor) + 2]


def documented_words(row):
    """Return the words that stand as code in a row of the config's table, or in a section that it links to."""
    links = re.findall(r"\]\(([\w./-]+\.md)?#([\w-]+)\)", row)
    text = "\n".join([row, *(section(page or "config.md", anchor) for page, anchor in links)])
    code = re.findall(r"```.*?```|`[^`\n]+`", text, re.DOTALL)
    return {word for one in code for word in re.findall(r"\w+", one)}


def test_every_config_key_is_documented():
    """A key of the first level has a row in the table; the row, or a section that it links to, names those inside."""
    rows = dict(
        re.findall(r"^(?=\| `(\w+)` \|)(.*)$", text_of("docs/reference/config.md").partition("\n### ")[0], re.MULTILINE)
    )
    words, keys = {name: documented_words(row) for name, row in rows.items()}, list(config_keys(Keys))
    assert len(keys) >= 100
    missing = [key for key in keys if key.rpartition(".")[2] not in words.get(key.partition(".")[0], ())]
    assert not missing, (
        "describe them in docs/reference/config.md, in the row of their first part or a section that it links to"
    )


def test_every_public_name_is_there_and_documented():
    import onetool

    everything = text_of("docs/reference/python.md") + text_of("README.md")
    for name in onetool.__all__:
        assert getattr(onetool, name) is not None
        assert name == "__version__" or name in everything, name
    with pytest.raises(AttributeError, match="Registry"):
        _ = onetool.nothing


def test_the_example_of_ask_runs(tmp_path):
    from ask.harness import Harness
    from ask.stand_in import Says, Wants

    with Harness(tmp_path) as harness:
        harness.model.will("It is large.", Says("", calls=[Wants("time__now", {})]), "It is small.")
        env = {**os.environ, "ONETOOL_CONFIG": str(harness.config)}
        command = [sys.executable, "-W", "error", "-c", blocks("docs/reference/python.md", "python")[-1]]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["It is large. 7", "time.now True", "It is small."]


def test_the_readme_opens_with_the_two_commands():
    opening = text_of("README.md")[:1200]
    assert "make serve" in opening
    assert "make test" in opening


@pytest.mark.parametrize(
    ("page", "number", "printed"),
    [
        ("docs/reference/python.md", 0, "HI\n"),
        ("docs/reference/python.md", 1, "hi\nFalse invalid_args\nmesage: unknown argument (did you mean message?)\n"),
        ("README.md", 1, ""),
        ("docs/guide/run.md", -2, "['one', 'two']\n"),
        ("docs/guide/run.md", -1, "2\n"),
    ],
)
def test_python_examples_run(page, number, printed, tmp_path):
    code = blocks(page, "python")[number]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert printed in done.stdout


def walk(command, folder):
    """Run what the page says to type: in a shell, where it takes one."""
    if command.startswith("onetool ") and not set(command) & set("|<>;&$*`~\\"):
        return cli(*shlex.split(command)[1:], cwd=folder)
    shell = command.replace("onetool ", f"{sys.executable} -m onetool ", 1)
    return subprocess.run(["bash", "-c", shell], cwd=folder, capture_output=True, text=True, check=False)


def console_commands(section):
    """Yield the commands of a section's console blocks, with the output shown for each."""
    found = re.search(rf"^## {section}.*?(?=^## )", text_of("README.md"), re.DOTALL | re.MULTILINE)
    for block in re.findall(r"```console\n(.*?)```", found[0], re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            lines = part.splitlines()
            last = next(end for end in range(1, len(lines) + 1) if "\n".join(lines[:end]).count("'") % 2 == 0)
            yield "\n".join(lines[:last]).partition("    #")[0], "\n".join(lines[last:])


@contextmanager
def petstore(folder):
    """Start the petstore of the examples at a free port; its document in `folder` names that port."""
    shutil.copytree(ROOT / "examples" / "petstore", folder / "examples" / "petstore")
    command = [sys.executable, "examples/petstore/server.py", "0"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        try:
            port = re.search(r":(\d+)/", process.stdout.readline())[1]
            document = folder / "examples" / "petstore" / "petstore.yaml"
            document.write_text(document.read_text().replace("8090", port))
            yield port
        finally:
            process.terminate()


def test_the_readme_can_be_followed(tmp_path):
    """Run the commands of the sections that need no other program, in their order, and compare what they print."""
    pack = tmp_path / ".onetool" / "packs" / "dice.py"
    sections = ("Any web API", "A tool in six lines", "Code over every tool")
    commands = [one for section in sections for one in console_commands(section)]
    assert len(commands) >= 9
    with petstore(tmp_path) as port:
        for command, shown in commands:
            if command.startswith("onetool trust"):
                pack.parent.mkdir(parents=True)
                pack.write_text(blocks("README.md", "python")[0])
            done = walk(command.replace("8090", port).replace("onetool trust", "onetool trust --yes"), tmp_path)
            printed = done.stdout + done.stderr
            assert done.returncode == shown.startswith("Error: "), (command, printed)
            if shown.startswith("Error: "):
                assert shown.removeprefix("Error: ") in printed
            elif shown and "dice" not in command:  # which gives other numbers each time
                data = json.loads(done.stdout)
                assert (data["result"]["data"] if "result" in data else data) == yaml.safe_load(shown)


def test_first_steps_can_be_walked(tmp_path):
    """Every command of the page, in its order, with the files that it says to write."""
    assert cli("init", cwd=tmp_path).returncode == 0
    (tmp_path / ".onetool" / "packs").mkdir()
    (tmp_path / ".onetool" / "packs" / "dice.py").write_text(blocks("docs/guide/first-steps.md", "python")[0])
    (tmp_path / ".onetool" / "more.yaml").write_text(blocks("docs/guide/first-steps.md", "yaml")[0])
    config = tmp_path / ".onetool" / "onetool.yaml"
    config.write_text(config.read_text().replace("#include: [more.yaml]", "include: [more.yaml]"))
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "tea.txt").write_text("green")
    walked = 0
    for block in blocks("docs/guide/first-steps.md", "sh"):
        for line in block.splitlines():
            command = line.partition("#")[0].strip()
            if "onetool init" in command or not command:
                continue
            done = walk(command, tmp_path)
            expected = 1 if '"pth"' in command else 0
            assert done.returncode == expected, (command, done.stderr)
            walked += 1
    assert walked >= 9
    read = cli("tools", "invoke", "read_note", "--args", '{"path": "notes/tea.txt"}', cwd=tmp_path)
    assert '"green"' in read.stdout


@pytest.fixture(scope="module")
def shop():
    from onetool import App

    with App.open(ROOT / "examples" / "run" / "onetool.yaml") as app:
        yield app


@each("code", [block for block in blocks("docs/guide/run.md", "python") if "# → " in block])
def test_the_examples_of_run_give_what_they_say(shop, code):
    written, _, expected = code.rpartition("# → ")
    result = shop.run_sync(written)
    assert result.error is None
    assert shop.reply(result.__class__(ok=True, data=result.data)).text == expected.strip()


def test_the_snippets_of_run_work(shop):
    assert blocks("docs/guide/run.md", "yaml")[0].strip() in (ROOT / "examples" / "run" / "onetool.yaml").read_text()
    for call in ("$bill kind=drink count=2", blocks("docs/guide/run.md", "text")[0]):
        assert shop.run_sync(call).data == "2 of each drink: 21.00"


def test_the_refusal_in_the_docs_of_run_is_what_it_says(shop):
    result = shop.run_sync('shop.find()\nshop.price(name="tea", cuont=1)')
    assert shop.reply(result).text == blocks("docs/guide/run.md", "text")[1].strip()


def test_every_built_in_tool_is_documented(shop):
    page = text_of("docs/guide/first-steps.md") + text_of("docs/reference/ot.md")
    names = [spec.name for spec in shop.tools() if spec.pack in (*BUILTIN, "ot")]
    assert len(names) > 15
    missing = [name for name in names if not re.search(rf"`{re.escape(name)}\b", page)]
    assert not missing, "name them in docs/guide/first-steps.md, those of ot in docs/reference/ot.md"


def test_every_target_that_pages_name_is_there():
    targets = set(re.findall(r"^([a-z-]+):", text_of("Makefile"), re.MULTILINE))
    for page in ("README.md", "CONTRIBUTING.md", ".ci/run", ".github/workflows/ci.yml"):
        named = set(re.findall(r"(?:^|`|run: )make ([a-z-]+)", text_of(page), re.MULTILINE))
        assert named
        assert named <= targets, page


def test_ci_runs_what_contributing_says():
    jobs = yaml.safe_load(text_of(".github/workflows/ci.yml"))["jobs"]
    ran = {step["run"] for job in jobs.values() for step in job["steps"] if "run" in step}
    assert ran == {".ci/run", "make lint", "make web-check", "make test-web"}
    versions = jobs["test"]["strategy"]["matrix"]["python"]
    assert f"Python {', '.join(versions[:-1])} and {versions[-1]}" in text_of("CONTRIBUTING.md")


def test_paths_in_pages_for_contributors_exist():
    for page in ("CONTRIBUTING.md", "docs/internals/architecture.md", "docs/internals/security-tests.md"):
        named = re.findall(r"`((?:src|tests|docs|bench)/[\w/.-]+)`", text_of(page))
        assert page == "docs/internals/architecture.md" or len(named) > 5
        assert [path for path in named if "NAME" not in path and not (ROOT / path).exists()] == []


def test_every_module_has_a_docstring():
    spec = importlib.util.spec_from_file_location("modules", ROOT / "docs" / "modules.py")
    modules = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(modules)
    files = [file for folder in modules.folders() for file in modules.files_of(folder)]
    assert len(files) > 400
    assert [file for file in files if not modules.sentence(file)] == []


ENTRIES = re.compile(r" {0,4}([a-z]\w*/?(?:, [a-z]\w*/?)*)  +\S")  # a line of a list: names, and what they are
BESIDE = re.compile(r"[;(] ?(\w+): ")  # `http  over HTTP; http_headers: headers`


def listed_modules(text, there):
    """The names in a docstring's lists of modules. A list that has mostly other names is of something else."""
    names = set()
    for part in text.split("\n\n"):
        lines = [found[1] for line in part.splitlines() if (found := ENTRIES.match(line))]
        entries = {name.strip("/") for line in lines for name in line.split(", ")}
        if len(entries & there) > len(entries) / 2:
            names |= entries
    return names


def test_packages_that_list_their_modules_list_all_of_them():
    wrong, lists = {}, 0
    for init in sorted((ROOT / "src" / "onetool").rglob("__init__.py")):
        text = ast.get_docstring(ast.parse(init.read_text())) or ""
        packages = {path.parent.name for path in init.parent.glob("*/__init__.py")}
        there = {path.stem for path in init.parent.glob("*.py")} - {"__init__"} | packages
        if len(names := listed_modules(text, there)) < 2:
            continue
        lists += 1
        names |= {name for name in BESIDE.findall(" ".join(text.split())) if name in there}
        if off := names ^ there:
            wrong[str(init.parent.relative_to(ROOT))] = sorted(off)
    assert wrong == {}
    assert lists > 10
