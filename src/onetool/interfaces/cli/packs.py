"""`onetool packs`: creates a pack from a template, and checks a pack without running it."""

import logging
import os
from contextlib import nullcontext
from keyword import iskeyword
from pathlib import Path

import click
import msgspec

from onetool.config.file_checks import is_inside
from onetool.interfaces.cli.options import config_option, data_options, open_app
from onetool.interfaces.cli.output import print_json, print_mistakes, wants_json
from onetool.interfaces.cli.trust import renew_trust
from onetool.sources.packs import BUILTIN
from onetool.sources.packs.importing import check_packs


@click.group(no_args_is_help=True)
def packs() -> None:
    """Write and check packs: Python files whose functions are tools."""


@packs.command()
@click.argument("name")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder to write to; .onetool/packs by default.",
)
@config_option
def new(_ctx: click.Context, name: str, folder: Path | None) -> None:
    """Write a pack with one tool, and its test."""
    if not name.isidentifier() or iskeyword(name) or name.startswith(("_", "test_")):
        raise click.BadParameter(f"{name!r} can't be a pack's name; use a word like hello.")
    if name in BUILTIN:
        raise click.BadParameter(f"{name!r} is the name of a pack that comes with OneTool.")
    elsewhere = folder is not None
    folder = folder or Path(".onetool") / "packs"
    words = {"name": name, "title": name.replace("_", " ").capitalize()}
    pack, test = folder / f"{name}.py", folder / f"test_{name}.py"
    files = {pack: PACK.format(**words), test: TEST.format(**words)}
    for file in files:
        if os.path.lexists(file):
            raise click.ClickException(f"{file} already exists; nothing was written.")
    try:
        with nullcontext() if elsewhere else renew_trust(folder.absolute().with_name("onetool.yaml")):
            folder.mkdir(parents=True, exist_ok=True)
            for file, text in files.items():
                file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"Can't write into {folder}: {error.strerror}.") from None
    click.echo(f"Wrote {pack} and {test}. Try:")
    if elsewhere:
        click.echo(f"  packs: [{folder.absolute()}]   in the config, so that it is found")
    click.echo(f'  onetool tools invoke {name}.greet --args \'{{"name": "Ann"}}\'')
    click.echo(f"  onetool packs check {pack}\n  pip install pytest && python -m pytest {test}")


@packs.command()
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@data_options
def check(ctx: click.Context, path: Path, as_json: bool) -> None:
    """Check a pack for errors and unclear tools. Reports what would fail, and what a model could not understand."""
    logging.getLogger("onetool").setLevel(logging.CRITICAL)  # it would report all packs
    app = open_app(ctx)
    untrusted = app.untrusted  # checking a pack runs it, so its folder must be trusted
    if untrusted is not None and is_inside(path, untrusted.folder.parent):
        way = ", or set ONETOOL_TRUST=1" if untrusted.mistake is None else ""
        raise click.ClickException(f"Checking a pack runs it, and {untrusted.short}{way}")
    found = check_packs(path, app.catalog.registry)
    if wants_json(as_json):
        print_json([msgspec.to_builtins(mistake) for mistake in found])
    else:
        print_mistakes(f"Pack: {path}", found)
    ctx.exit(1 if any(mistake.severity == "error" for mistake in found) else 0)


# The pack that `onetool packs new` writes, and its test.

PACK = '''"""{title}: say here what the tools of this pack do."""

from typing import Annotated

from onetool.sdk import ToolFailure, get_config, tool

pack = "{name}"


@tool(read_only=True)  # it changes nothing, so models may call it without approval
def greet(name: Annotated[str, "Who to greet."], excited: bool = False) -> str:
    """Greet somebody.

    The first line is what a model reads in lists; this paragraph comes with the details.

    Args:
        excited: Whether to end with an exclamation mark.
    """
    if not name.strip():
        raise ToolFailure("there is nobody to greet", hints=["give a name"])
    greeting = get_config().get("greeting", "Hello")  # settings: {{{name}: {{greeting: Hi}}}} in the config
    return f"{{greeting}}, {{name}}{{'!' if excited else '.'}}"
'''

TEST = """import importlib.util
from pathlib import Path

from onetool.sdk.testing import packs

spec = importlib.util.spec_from_file_location("{name}", Path(__file__).with_name("{name}.py"))
{name} = importlib.util.module_from_spec(spec)
spec.loader.exec_module({name})


def test_greet():
    with packs({name}, settings={{"{name}": {{"greeting": "Hi"}}}}) as tools:
        assert tools.call("{name}.greet", name="Ann", excited=True) == "Hi, Ann!"
        assert tools.result("{name}.greet", name=" ").error.message == "there is nobody to greet"
        assert tools.result("{name}.greet").error.code == "invalid_args"
"""
