"""docs/internals/benchmarks.md, and what the README quotes of it."""

import re
from pathlib import Path

from bench import charts, page_of_results, results
from bench.table import row

ROOT = Path(__file__).parent.parent.parent
PAGE, README = ROOT / "docs" / "internals" / "benchmarks.md", ROOT / "README.md"


def lines_of(text):
    return [line for line in text.splitlines() if line.startswith("|")]


def strangers(quoted, page):
    """Lines that are not the beginning of a line of the page."""
    return [line for line in lines_of(quoted) if not any(one.startswith(line) for one in lines_of(page))]


def test_a_row_has_each_peer_with_its_ratio():
    turns = {"OneTool": [3_000.0], "FastMCP": [400.0], "smolagents": [6_000.0], "bare": [9_000.0]}
    found = row("tools/call", "/s", turns, floors=["bare"], more=True, aim="5 ×")
    peers = "| tools/call | 3,000 /s | 400 /s, 7.50 × |  | smolagents: 6,000 /s, 0.50 × | smolagents |"
    assert page_of_results.line(found) == f"{peers} bare: 9,000 /s, ours 0.33 × | 5 × |"
    start = row("a start", "s", {"OneTool": [0.06], "python": [0.02]}, floors=["python"])
    assert "| python: 0.020 s, ours 3.00 × |" in page_of_results.line(start)


def test_an_aim_that_is_missed_says_so():
    def aim(text, **turns):
        found = row("x", "ms", {"OneTool": [0.010], **turns}, floors=["python"], aim=text)
        return page_of_results.line(found).rpartition(" |")[0].rpartition("| ")[2]

    assert [aim(text) for text in ("under 9 ms", "at most 11", "9.5", "1,500", "no growth", "")] == [
        "**missed:** under 9 ms",
        "at most 11",
        "**missed:** 9.5",
        "1,500",
        "no growth",
        "",
    ]
    assert aim("5 × FastMCP", FastMCP=[0.04]) == "**missed:** 5 × FastMCP"
    assert aim("3 × FastMCP", FastMCP=[0.04]) == "3 × FastMCP"
    assert aim("under 4 × python", python=[0.002]) == "**missed:** under 4 × python"
    assert aim("under 6 × python", python=[0.002]) == "under 6 × python"


def test_figures_have_as_many_digits_as_one_reads():
    shown = [page_of_results.shown(value, "ms") for value in (0.01234, 1.234, 12.34, 1234.5, 7)]
    assert shown == ["0.012 ms", "1.23 ms", "12.3 ms", "1,234 ms", "7 ms"]


def test_there_is_one_table_with_every_subject(after):
    page = page_of_results.page(after)
    table = page[page.index("| what") :].split("\n\n")[0].splitlines()
    assert [line.split("|")[1].strip() for line in table] == [
        "what",
        "---",
        "**cold-start**",
        "onetool --version",
        "**mcp**",
        "MCP: tools/call",
    ]
    assert {line.count("|") for line in table} == {9}
    assert table[-1].split("|")[6].strip() == "FastMCP"  # where we lose, it says so
    assert lines_of(page) == table


def test_the_page_tells_when_and_where_each_subject_was_measured(before, after):
    page = page_of_results.page({"cold-start": before["cold-start"], "mcp": after["mcp"]})
    assert "- cold-start: 2026-01-02, on an old machine, 2 cores; onetool 0.0.9, fastmcp 4.0.0.\n" in page
    assert "- mcp: 2026-11-16, on a new machine, 8 cores; onetool 0.1.0, fastmcp 4.1.0.\n" in page
    assert "- cold-start, mcp: 2026-11-16," in page_of_results.page(after)


def test_a_chart_is_shown_if_there_is_something_in_it(after):
    page = page_of_results.page(after)
    assert "(../pictures/bench-speed.svg)" in page
    assert "(../pictures/bench-tokens.svg)" not in page


def test_the_readme_quotes_lines_of_the_page(after):
    readme = f"# A\n\n{page_of_results.BEGIN}\nold | 1 |\n{page_of_results.END}\n\nThe rest.\n"
    quoted = page_of_results.quoted(readme, after)
    assert quoted.startswith("# A\n\n<!-- measured")
    assert quoted.endswith("The rest.\n")
    assert "old" not in quoted
    assert lines_of(quoted)[2:] == ["| MCP: tools/call | 1,500 /s | 2,000 /s, 0.75 × |  |  | FastMCP |"]
    assert strangers(quoted, page_of_results.page(after)) == []
    assert strangers(quoted.replace("1,500", "9,500"), page_of_results.page(after)) != []


# What is in this repository


def test_the_page_and_the_charts_are_those_of_the_figures(tmp_path):
    kept = results.read(ROOT / "docs" / "internals" / "benchmarks.json")
    assert PAGE.read_text() == page_of_results.page(kept)
    charts.write(tmp_path, kept)
    drawn = {file.name: file.read_text() for file in tmp_path.iterdir()}
    assert {name: (ROOT / "docs" / "pictures" / name).read_text() for name in drawn} == drawn
    assert "bench-speed.svg" in drawn


def test_each_figure_that_the_readme_names_as_measured_stands_in_the_page():
    readme = README.read_text()
    measured = readme[readme.index(page_of_results.BEGIN) : readme.index(page_of_results.END)]
    assert len(lines_of(measured)) > 2
    assert strangers(measured, PAGE.read_text()) == []


def test_the_readme_names_no_other_figure():
    """Limits are no measurements: they hold on every machine."""
    readme = README.read_text()
    prose = readme[: readme.index(page_of_results.BEGIN)] + readme[readme.index(page_of_results.END) :]
    prose = re.sub(r"```.*?```", "", prose, flags=re.DOTALL)
    assert re.findall(r"\d[\d.,]* ?(?:×|times|ms|µs|seconds|MB|a second)", prose) == []
