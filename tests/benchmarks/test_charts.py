"""Charts as SVG: well-formed, to scale, and readable on light and dark pages."""

from xml.etree import ElementTree

from bench import charts
from bench.results import Subject
from bench.table import row

SVG = "{http://www.w3.org/2000/svg}"


def drawn(folder, name, rows, taken):
    charts.write(folder, {"mcp": Subject(taken, rows)})
    return ElementTree.fromstring((folder / f"bench-{name}.svg").read_text())


def bars(tree):
    page, *found = tree.iter(f"{SVG}rect")
    assert page.get("class") == "page"  # behind all of them
    return [(one.get("class"), float(one.get("width"))) for one in found]


def words(tree):
    return ["".join(one.itertext()) for one in tree.iter(f"{SVG}text")]


def test_a_bar_for_each_peer_and_another_colour_where_we_lose(tmp_path, after):
    turns = {"OneTool": [1.0], "A & B": [4.0], "<quick>": [0.5], "floor": [0.1]}
    rows = [row("a call", "s", turns, floors=["floor"], chart="speed"), row("not shown", "s", turns)]
    tree = drawn(tmp_path, "speed", rows, after["mcp"].taken)
    (kind, width), (lost_kind, lost_width) = bars(tree)
    assert (kind, lost_kind) == ("ours", "lost")
    assert round(width / lost_width) == 8
    title, *told = words(tree)
    assert title == charts.CHARTS["speed"]
    assert told == ["a call A & B", "4.00 ×", "a call <quick>", "0.50 ×"]
    (one,) = tree.iter(f"{SVG}line")
    assert float(one.get("x1")) - charts.LABEL == width / 4  # where both are equal
    assert "a call, beside A & B: 4.00 ×" in tree.find(f"{SVG}desc").text


def test_nothing_reaches_out_of_the_picture(tmp_path, after):
    rows = [row(f"call {n}", "s", {"OneTool": [1.0], "FastMCP": [10.0**n]}, chart="speed") for n in range(4)]
    tree = drawn(tmp_path, "speed", rows, after["mcp"].taken)
    width, height = (float(part) for part in tree.get("viewBox").split()[2:])
    for one in list(tree.iter(f"{SVG}rect"))[1:]:
        assert float(one.get("x")) + float(one.get("width")) + charts.VALUE <= width
        assert float(one.get("y")) + float(one.get("height")) <= height
        assert float(one.get("width")) >= 1


def test_tokens_are_shown_as_they_are_and_each_peer_once(tmp_path, after):
    peers = {"FastMCP, every tool": [105_000], "FastMCP, search": [1_900]}
    rows = [
        row(f"a task, menu {menu}", "tokens", {"OneTool": [count], **peers}, chart="tokens")
        for menu, count in (("run", 1_100), ("search", 1_800))
    ]
    tree = drawn(tmp_path, "tokens", rows, after["mcp"].taken)
    assert words(tree)[1:] == [
        *("OneTool, menu run", "1,100", "OneTool, menu search", "1,800"),
        *("FastMCP, every tool", "105,000", "FastMCP, search", "1,900"),
    ]
    assert [kind for kind, _ in bars(tree)] == ["ours", "ours", "peer", "peer"]
    assert not list(tree.iter(f"{SVG}line"))


def test_dark_pages_get_colours_of_their_own_and_nothing_is_fetched(tmp_path, after):
    text = charts.drawn("A title", [charts.Bar("a", 1.0, "1 ×", "ours")], one=True)
    assert "@media(prefers-color-scheme:dark)" in text
    assert text.count("http") == 1  # the name of the format
    assert ElementTree.fromstring(text).get("role") == "img"


def test_a_chart_with_nothing_in_it_is_not_drawn(tmp_path, before):
    charts.write(tmp_path, {"cold-start": before["cold-start"]})
    assert list(tmp_path.iterdir()) == []
