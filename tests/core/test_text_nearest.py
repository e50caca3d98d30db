"""Near misses: the likely name first, and nothing where nothing is close."""

from helpers import calls, each

from onetool.core.text import did_you_mean, nearest

TOOLS = [
    "time.now",
    "ot.health",
    "tools.echo",
    "shell.pwd",
    "fs.list_dir",
    "fs.read_file",
    "maxDepth",
    "path",
    "recursive",
]


@each(
    ("wrong", "meant"),
    [
        ("pth", "path"),
        ("max_depth", "maxDepth"),
        ("tim.now", "time.now"),
        ("now", "time.now"),
        ("read_fil", "fs.read_file"),
        ("FS.READ_FILE", "fs.read_file"),
        ("listdir", "fs.list_dir"),
    ],
)
def test_the_likely_name_comes_first(wrong, meant):
    assert nearest(wrong, TOOLS)[0] == meant


@each("wrong", ["", "weather", "zzzz", "🦊", "x" * 10_000])
def test_nothing_close_gives_nothing(wrong):
    assert nearest(wrong, TOOLS) == []
    assert did_you_mean(wrong, TOOLS) is None


def test_quick_among_many():
    names = [f"pack{n % 100}.tool_number_{n}" for n in range(100_000)]
    with calls(300_000):
        assert nearest("pack7.tool_numbr_107", names)
