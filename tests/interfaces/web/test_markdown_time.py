"""lib/chat/markdown.ts, run by Node: what a model writes can't hold up the page, and means the same as before.

The texts are so long that time which grows faster than they do would be minutes and hours: then Node is ended.
"""

import json
import subprocess

import pytest
from tests import npm
from web.build import NODE, WEB

pytestmark = pytest.mark.long

PACKAGES = NODE / "node_modules"
PATIENCE_S = 60.0  # for all of them; what is in order takes a second or two
DRIVER = """
import {{ markdown }} from {module};
const asked = JSON.parse(require("node:fs").readFileSync(0, "utf8"));
console.log(JSON.stringify(asked.map(([text, isLong]) => (isLong ? markdown(text).length : markdown(text)))));
"""
LONG = 1_000_000
HOSTILE = {
    "a heading with other ends of lines": ("#" + " " * 900 + "a\u2028a\n") * 1000,
    "a heading with spaces inside": ("# a" + " " * 900 + "\u2029#\n") * 1000,
    "a heading that seems to close": ("# " + "# " * 490 + "a\n") * 1000,
    "code in a line": "` " + "a" * LONG + "`",
    "code of spaces": "`" + " " * LONG + "a`",
    "backticks of all lengths": "a".join("`" * length for length in range(1, 1400)),
    "backticks that nothing closes": "`` a ` b ``` " * (LONG // 13),
    "addresses that lead nowhere": "-http://@x" * (LONG // 10),
    "an address with dots": ("-http://@" + "." * 3900 + "x") * (LONG // 3910),
    "marks around much": "*a " + "`x` " * (LONG // 4),
    "marks that nothing closes": "**a _b ~~c " * (LONG // 11),
    "links that begin": "[](" * (LONG // 3),
    "texts of links": ("[" + "a" * 990) * (LONG // 991),
    "quotes in quotes": "> " * (LONG // 2),
    "lists in lists": "- " * (LONG // 2),
    "lists that go on": "- a\nb\n" * (LONG // 6),
    "a wide table": "|" + "a|" * (LONG // 4) + "\n|" + "-|" * (LONG // 4),
    "many tables": "|a|\n|-|\n" * (LONG // 8),
    "fences": "```\n~~~\n" * (LONG // 8),
    "ends of lines": "\r" * LONG,
}


@pytest.fixture(scope="module")
def read(tmp_path_factory):
    if not (PACKAGES / "rolldown").exists():
        pytest.skip("MARKDOWN IS NOT TESTED: the page's packages are not installed (`make web` does)")
    folder = tmp_path_factory.mktemp("markdown")
    module = json.dumps(str(WEB / "src" / "lib" / "chat" / "markdown.ts"))
    (folder / "driver.ts").write_text(DRIVER.format(module=module), encoding="utf-8")
    cli = [*npm.node(), PACKAGES / "rolldown" / "bin" / "cli.mjs", "driver.ts", "--platform", "node", "--format", "cjs"]
    subprocess.run([*map(str, cli), "-o", "driver.cjs"], cwd=folder, capture_output=True, check=True)

    def ask(*asked):
        done = subprocess.run(
            [*npm.node(), "driver.cjs"],
            cwd=folder,
            input=json.dumps(asked),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return json.loads(done.stdout)

    return ask


@pytest.fixture(scope="module")
def blocks(read):
    """How many blocks each text has."""
    return dict(zip(HOSTILE, read(*([text, True] for text in HOSTILE.values())), strict=True))


@pytest.mark.parametrize("name", HOSTILE)
def test_no_text_holds_up_the_page(blocks, name):
    assert blocks[name] > 0 or not HOSTILE[name].strip()


def text(words):
    return {"kind": "text", "text": words}


def test_what_it_means(read):
    heading = {"kind": "heading", "level": 2, "inside": [text("a # b")]}
    link = {"kind": "link", "text": "", "url": "https://example.com/a"}
    cases = {
        "## a # b ##": [heading],
        "## a # b   # ": [heading],
        "##\ta # b": [heading],
        "# a#": [{"kind": "heading", "level": 1, "inside": [text("a#")]}],
        "# ##": [{"kind": "heading", "level": 1, "inside": []}],
        "#a": [{"kind": "paragraph", "inside": [text("#a")]}],
        "a\rb": [{"kind": "paragraph", "inside": [text("a\nb")]}],
        "# a\u2028b": [
            {"kind": "heading", "level": 1, "inside": [text("a")]},
            {"kind": "paragraph", "inside": [text("b")]},
        ],
        "`` ` ``": [{"kind": "paragraph", "inside": [{"kind": "code", "text": "`"}]}],
        "` `": [{"kind": "paragraph", "inside": [{"kind": "code", "text": " "}]}],
        "`a``b`": [{"kind": "paragraph", "inside": [{"kind": "code", "text": "a``b"}]}],
        "``a`b": [{"kind": "paragraph", "inside": [text("``a`b")]}],
        "https://example.com/a.).": [{"kind": "paragraph", "inside": [link, text(".).")]}],
        "https://u:p@example.com/": [{"kind": "paragraph", "inside": [text("https://u:p@example.com/")]}],
    }
    assert read(*([one, False] for one in cases)) == [*cases.values()]
