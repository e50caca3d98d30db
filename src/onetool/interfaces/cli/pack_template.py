"""The pack that `onetool packs new` writes, and its test."""

PACK = '''"""{title}: say here what the tools of this pack are good for."""

from typing import Annotated

from onetool.sdk import ToolFailure, get_config, tool

pack = "{name}"


@tool(read_only=True)  # it changes nothing, so that models may call it unasked
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


def pack_files(name: str) -> dict[str, str]:
    """File names and their texts: the pack first, then its test."""
    words = {"name": name, "title": name.replace("_", " ").capitalize()}
    return {f"{name}.py": PACK.format(**words), f"test_{name}.py": TEST.format(**words)}
