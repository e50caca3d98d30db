"""What imports mean in code: the sandbox's modules, the library's, packs, and packs that are named like modules."""

import pytest
from helpers import each


@pytest.fixture(scope="module")
def scripts(scripts_for_module):
    scripts_for_module.tool("math.luck", lambda: "good")
    scripts_for_module.tool("statistics.vote", lambda: "yes")
    scripts_for_module.tool("shop.price", lambda name="tea": f"{name}: 4", name={"type": "string"})
    scripts_for_module.tool("shop.find", lambda: ["tea"])
    return scripts_for_module


@each(
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


@each(
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
    code = "class A:\n    def __init__(self):\n        self.luck = 3\ndef f(math):\n    return math.luck\nf(A())"
    assert scripts.value(code) == 3
    assert scripts.value("math = 5\nmath") == 5


@each(
    ("code", "value"),
    [
        ("import statistics\nstatistics.mean([1, 3])", 2),
        ("import statistics as st\nst.mean([1, 3])", 2),
        ("from statistics import mean as avg, median\n[avg([1, 3]), median([1])]", [2, 1]),
        ("import urllib.parse\nurllib.parse.quote('a b')", "a%20b"),
        ("import urllib\nurllib.parse.quote('a b')", "a%20b"),
        ("import urllib.parse as p\np.quote('a b')", "a%20b"),
        ("from urllib import parse\nparse.quote('a b')", "a%20b"),
        ("from urllib.parse import quote as q\nq('a b')", "a%20b"),
        ("import json, statistics, math as m\n[json.dumps(1), statistics.mean([2]), m.floor(1.5)]", ["1", 2, 1]),
        (
            "x = 'é'; import statistics; y = statistics.mean([1]); import string\n[x, y, string.digits[0]]",
            ["é", 1, "0"],
        ),
        ("def f():\n    from statistics import mean\n    return mean([1, 3])\nf()", 2),
        ("def f():\n    global st\n    import statistics as st\nf()\nst.mean([1, 3])", 2),
        ("class A:\n    import statistics\n    def f(self):\n        return A.statistics.mean([4])\nA().f()", 4),
        ("if True: import statistics; x = statistics.mean([1])\nx", 1),
        ("from statistics import *\n[mean([1]), median([2])]", [1, 2]),
        ("from heapq import (heappush,\n  heappop)  # comment\nh = [2]\nheappush(h, 1)\nheappop(h)", 1),
        ("from heapq import (heappush,\n  heappop); h = [2]\nheappop(h)", 2),
        ("import json, \\\n  string\nstring.digits[:2]", "01"),
        ("import string, \\\n  json\njson.dumps(string.digits[:2])", '"01"'),
        ("import string\rstring.digits[:1]", "0"),
        ("import string\r\nstring.digits[:1]", "0"),
        ("x = 'import string'\nx", "import string"),
        ("import statistics\nsorted([[3], [1, 2]], key=statistics.mean)", [[1, 2], [3]]),
        ("import textwrap as a\nimport textwrap as b\na is b", True),
        ("try:\n    from statistics import nope\nexcept ImportError:\n    x = 5\nx", 5),
        ("import math\nmath.floor(2.5)", 2),
    ],
)
def test_modules_of_the_library(scripts, code, value):
    assert scripts.value(code) == value


@each(
    "code",
    [
        "from heapq import (\n    heappush,\n    # comment\n    heappop as pop,\n)\n",
        "import json, \\\n  string\n",
        "from statistics import (mode,\n  mean)\n",
        "def f():\n    from string import (digits,\n\n      printable)\n    return digits\n",
        "from math import (luck,\n  floor)\n",
    ],
)
def test_lines_keep_their_numbers(scripts, code):
    number = code.count("\n") + 1
    assert scripts.error(f"{code}1 / 0").hints[0] == f"line {number}: 1 / 0"


def test_text_in_strings_is_not_touched(scripts):
    assert scripts.value("x = 'import math; math.luck()'; math.luck(); x") == "import math; math.luck()"
    assert scripts.value("import math; x = 'é'; y = math.luck(); x") == "é"
    assert scripts.value('import math\nx = """\n  math.luck()\n"""\nmath.floor(0.5)\nx') == "\n  math.luck()\n"


@each(
    ("code", "message"),
    [
        ("from statistics import mean, nope", "cannot import name 'nope' from 'statistics'"),
        ("from urllib import request", "cannot import name 'request' from 'urllib': it has parse"),
        ("from shop import nope", "cannot import name 'nope' from 'shop': it has price, find"),
        ("import urllib.request", "No module named 'urllib"),
        ("import urllib.parse, urllib.request", "No module named 'urllib"),
        ("import shop.more", "No module named 'shop"),
        ("import nope", "No module named 'nope'"),
    ],
)
def test_names_that_are_not_there(scripts, code, message):
    error = scripts.error(f"if 1:\n    {code}\n")
    assert message in error.message
    assert error.hints[0] == f"line 2: {code}"
    assert scripts.value(f"try:\n    {code}\nexcept ImportError:\n    r = 'caught'\nr") == "caught"


def test_awaits_are_found_behind_what_was_rewritten(scripts):
    first = "import asyncio, math\nfrom statistics import mean\n"
    code = f"{first}[*await asyncio.gather(math.luck(), math.luck()), mean([1])]"
    assert scripts.value(code) == ["good", "good", 1]


def test_code_that_only_the_sandbox_can_parse_reaches_the_tools(scripts):
    """Quotes inside of f-strings came with Python 3.12; a model does not ask which Python runs us."""
    assert scripts.value("""f"{ {'a': shop.price()}["a"] }" """) == "tea: 4"


def test_every_run_starts_empty(scripts):
    assert scripts.value("import statistics\nx = 1\nx") == 1
    assert "is not defined" in scripts.error("x").message
    assert "is not defined" in scripts.error("textwrap").message
