"""What imports mean in code: the sandbox's modules, the library's, packs, and packs that are named like modules."""

import pytest


@pytest.fixture(scope="module")
def scripts(scripts_for_module):
    scripts_for_module.tool("time.now", lambda: "noon")
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
        "(time.now(), time.sleep(0))",
        "import time\n(time.now(), time.sleep(0))",
        "import time as t\n(t.now(), t.sleep(0))",
        "from time import now, sleep\n(now(), sleep(0))",
        "from time import (\n    now,\n    sleep as nap,\n)\n(now(), nap(0))",
        "def f():\n    import time\n    return time.now(), time.sleep(0)\nf()",
        "f = time.now\n(f(), time.sleep(0))",
    ],
)
def test_a_pack_named_like_a_module_is_merged_with_it(scripts, code):
    assert scripts.value(code) == ["noon", None]


def test_a_pack_named_like_a_library_module_is_merged_too(scripts):
    assert scripts.value("statistics.vote(), statistics.mean([1, 3])") == ["yes", 2]
    assert scripts.value("import statistics\nstatistics.vote(), statistics.mean([1, 3])") == ["yes", 2]
    assert scripts.value("from statistics import vote, mean\nvote(), mean([1, 3])") == ["yes", 2]


def test_a_name_that_the_code_gives_itself_is_its_own(scripts):
    code = "class Clock:\n    def __init__(self):\n        self.now = 3\ndef f(time):\n    return time.now\nf(Clock())"
    assert scripts.value(code) == 3
    assert scripts.value("time = 5\ntime") == 5


def test_lines_keep_their_numbers(scripts):
    code = "from statistics import (\n    mean,\n    median,\n)\nfrom time import (now,\n  sleep)\n1 / 0"
    assert scripts.error(code).hints[0] == "line 7: 1 / 0"


def test_text_in_strings_is_not_touched(scripts):
    assert scripts.value("x = 'import time; time.now()'; time.now(); x") == "import time; time.now()"
    assert scripts.value("import time; x = 'é'; y = time.now(); x") == "é"
    assert scripts.value('import time\nx = """\n  time.now()\n"""\ntime.sleep(0)\nx') == "\n  time.now()\n"


def test_a_name_that_is_not_there_can_be_caught_like_anywhere(scripts):
    assert "cannot import name 'nope' from 'shop': it has price, find" in scripts.error("from shop import nope").message
    assert "cannot import name 'nope' from 'statistics'" in scripts.error("from statistics import nope").message
    caught = "try:\n    from statistics import nope\nexcept ImportError:\n    r = 'caught'\nr"
    assert scripts.value(caught) == "caught"


def test_awaits_are_found_behind_what_was_rewritten(scripts):
    code = (
        "import asyncio, time\nfrom statistics import mean\n[*await asyncio.gather(time.now(), time.now()), mean([1])]"
    )
    assert scripts.value(code) == ["noon", "noon", 1]


def test_code_that_only_the_sandbox_can_parse_reaches_the_tools(scripts):
    """Quotes inside of f-strings came with Python 3.12; a model does not ask which Python runs us."""
    assert scripts.value("""f"{ {'a': shop.price()}["a"] }" """) == "tea: 4"


def test_every_run_starts_empty(scripts):
    assert scripts.value("import statistics\nx = 1\nx") == 1
    assert "is not defined" in scripts.error("x").message
    assert "is not defined" in scripts.error("textwrap").message
