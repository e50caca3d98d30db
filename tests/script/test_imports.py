"""What imports mean in code: the sandbox's modules, the library's, packs, and packs that are named like modules."""

import pytest


@pytest.fixture(scope="module")
def scripts(scripts_for_module):
    scripts_for_module.tool("math.luck", lambda: "good")
    scripts_for_module.tool("statistics.vote", lambda: "yes")
    scripts_for_module.tool("shop.price", lambda name="tea": f"{name}: 4", name={"type": "string"})
    scripts_for_module.tool("shop.find", lambda: ["tea"])
    return scripts_for_module


@pytest.mark.parametrize(
    "code",
    [
        "import shop\nshop.price()",
        "import shop as s\ns.price()",
        "from shop import price\nprice()",
        "from shop import price as p, find\np(find()[0])",
        "from shop import *\nprice(find()[0])",
        "def f():\n    import shop\n    return shop.price()\nf()",
        "def f():\n    from shop import (\n        price,\n    )\n    return price()\nf()",
        "import json, shop, math as m; json.loads(json.dumps(shop.price()))",
    ],
)
def test_a_pack_can_be_imported_though_nothing_needs_it(scripts, code):
    assert scripts.value(code) == "tea: 4"


@pytest.mark.parametrize(
    "code",
    [
        "(math.luck(), math.floor(0.5))",
        "import math\n(math.luck(), math.floor(0.5))",
        "import math as m\n(m.luck(), m.floor(0.5))",
        "from math import luck, floor\n(luck(), floor(0.5))",
        "from math import (\n    luck,\n    floor as f,\n)\n(luck(), f(0.5))",
        "def f():\n    import math\n    return math.luck(), math.floor(0.5)\nf()",
        "f = math.luck\n(f(), math.floor(0.5))",
    ],
)
def test_a_pack_named_like_a_module_is_merged_with_it(scripts, code):
    assert scripts.value(code) == ["good", 0]


def test_a_pack_named_like_a_library_module_is_merged_too(scripts):
    assert scripts.value("statistics.vote(), statistics.mean([1, 3])") == ["yes", 2]
    assert scripts.value("import statistics\nstatistics.vote(), statistics.mean([1, 3])") == ["yes", 2]
    assert scripts.value("from statistics import vote, mean\nvote(), mean([1, 3])") == ["yes", 2]


def test_a_name_that_the_code_gives_itself_is_its_own(scripts):
    code = "class Clock:\n    def __init__(self):\n        self.luck = 3\ndef f(math):\n    return math.luck\nf(Clock())"
    assert scripts.value(code) == 3
    assert scripts.value("math = 5\nmath") == 5


def test_lines_keep_their_numbers(scripts):
    code = "from statistics import (\n    mean,\n    median,\n)\nfrom math import (luck,\n  floor)\n1 / 0"
    assert scripts.error(code).hints[0] == "line 7: 1 / 0"


def test_text_in_strings_is_not_touched(scripts):
    assert scripts.value("x = 'import math; math.luck()'; math.luck(); x") == "import math; math.luck()"
    assert scripts.value("import math; x = 'é'; y = math.luck(); x") == "é"
    assert scripts.value('import math\nx = """\n  math.luck()\n"""\nmath.floor(0.5)\nx') == "\n  math.luck()\n"


def test_a_name_that_is_not_there_can_be_caught_like_anywhere(scripts):
    assert "cannot import name 'nope' from 'shop': it has price, find" in scripts.error("from shop import nope").message
    assert "cannot import name 'nope' from 'statistics'" in scripts.error("from statistics import nope").message
    caught = "try:\n    from statistics import nope\nexcept ImportError:\n    r = 'caught'\nr"
    assert scripts.value(caught) == "caught"


def test_awaits_are_found_behind_what_was_rewritten(scripts):
    code = (
        "import asyncio, math\nfrom statistics import mean\n[*await asyncio.gather(math.luck(), math.luck()), mean([1])]"
    )
    assert scripts.value(code) == ["good", "good", 1]


def test_code_that_only_the_sandbox_can_parse_reaches_the_tools(scripts):
    """Quotes inside of f-strings came with Python 3.12; a model does not ask which Python runs us."""
    assert scripts.value("""f"{ {'a': shop.price()}["a"] }" """) == "tea: 4"


def test_every_run_starts_empty(scripts):
    assert scripts.value("import statistics\nx = 1\nx") == 1
    assert "is not defined" in scripts.error("x").message
    assert "is not defined" in scripts.error("textwrap").message
