"""The page with 10,000 tools in a real browser, and what it adds to a server that nobody visits."""

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from bench.bundles_made import write_home
from bench.mcp_contenders import ROOT
from bench.table import OURS, Row, row, show

TOOLS = 10_000
VISITS = 5
KEYS = 11
# The time from the first byte asked for until the first row is drawn, and until all of them are known.
FIRST_ROW = """new Promise((done) => (function look() {
  if (document.querySelector('[data-row]')) requestAnimationFrame(() => done(performance.now()));
  else requestAnimationFrame(look);
})())"""
ALL_ROWS = """new Promise((done) => (function look() {
  if (document.querySelector('[aria-setsize="%d"]')) requestAnimationFrame(() => done(performance.now()));
  else requestAnimationFrame(look);
})())"""
# The time from a key until the window shows what is left.
FILTERED = """(async (text) => {
  const field = document.querySelector('input[type=search]');
  const began = performance.now();
  field.value = text;
  field.dispatchEvent(new Event('input', {bubbles: true}));
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  return performance.now() - began;
})(%s)"""
SENT = "performance.getEntries().filter((one) => one.transferSize).map((one) => [one.name, one.transferSize])"
# What a server has loaded and holds, before anybody visits the page.
BEFORE = """
import json, sys
from onetool import App
from onetool.interfaces.http.listen import BoundAddress
from onetool.interfaces.http.site import build_site
with App.open() as app:
    build_site(app, BoundAddress("127.0.0.1", 8765, ("127.0.0.1",)), None, lambda scope: "")
    print(json.dumps([name for name in sys.modules if name.startswith("onetool.interfaces.web")]))
"""


def run() -> Iterator[Row]:
    yield from _unvisited()
    from tests.browser.chromium import chromium, found

    if found() is None:
        print("\nThe page in a browser: not measured, there is no Chromium on this machine (`make browser`)")
        return
    with _served() as url, chromium("127.0.0.1") as browser:
        visits = [_visit(browser, url) for _ in range(VISITS)]
    yield from _shown(visits)


def _unvisited() -> Iterator[Row]:
    """What `serve` loads of the page by itself: aim, nothing."""
    with TemporaryDirectory() as folder:
        environment = {**os.environ, "HOME": folder, "ONETOOL_HOME": folder}
        done = subprocess.run(
            [sys.executable, "-c", BEFORE], cwd=folder, env=environment, check=True, capture_output=True, text=True
        )
    loaded = json.loads(done.stdout)
    show(
        "The page before anybody visits it",
        ["", "now", "aim"],
        [["modules that a server has loaded for it", str(len(loaded)), "0"]],
    )
    yield row("page: modules that a server has loaded for it before a visit", "modules", {OURS: [len(loaded)]}, aim="0")


@contextmanager
def _served() -> Iterator[str]:
    """A server with 10,000 tools in bundles."""
    sys.path.append(str(ROOT / "tests"))  # where its helpers are
    from tests.interfaces.http.conftest import Served

    with TemporaryDirectory() as folder:
        config = write_home(Path(folder) / "made", TOOLS)
        environment = {"ONETOOL_HOME": str(config.parent)}  # where the bundles are
        server = Served(
            Path(folder), "--port", "0", "--config", str(config), command=("-m", "onetool"), env=environment
        )
        try:
            yield f"http://127.0.0.1:{server.port}/"
        finally:
            server.stop()


def _visit(browser: Any, url: str) -> dict[str, float]:
    """One visit with an empty cache."""
    with browser.page(width=1280, height=800) as page:
        page.open(f"{url}#/tools")
        first = page.value(FIRST_ROW)
        count = page.value(f"fetch('{url}status').then((answer) => answer.json()).then((said) => said.tools)")
        if count < TOOLS:
            raise SystemExit(f"The server has {count:,} tools, not {TOOLS:,}: nothing was measured.")
        every = page.value(ALL_ROWS % _listed(page, url, count))
        took = [page.value(FILTERED % json.dumps("invoice"[: 1 + at % 7])) for at in range(KEYS)]
        sent = {name: size for name, size in page.value(SENT) if name == url or "/assets/" in name}
    return {"first": first, "all": every, "key": median(took), "worst": max(took), "bytes": sum(sent.values())}


def _listed(page: Any, url: str, count: int) -> int:
    """Return the number of rows at the end: disabled tools are listed, built-in `ot` tools are folded."""
    query = f"{url}tools/tools?includeDisabled=true&recommendedPageSize=1000&fields=id,bundleSlug,isBuiltIn"
    return page.value(f"""(async () => {{
      let [all, token] = [0, ''];
      do {{
        const found = await (await fetch('{query}' + token)).json();
        all += found.tools.filter((one) => !(one.isBuiltIn && one.bundleSlug === 'ot')).length;
        token = found.nextPageToken ? '&pageToken=' + found.nextPageToken : '';
      }} while (token && all < {count} + 1000);
      return all;
    }})()""")


def _shown(visits: list[dict[str, float]]) -> Iterator[Row]:
    from onetool.interfaces import web

    static = Path(web.__file__).parent / "static"
    whole = sum(len(gzip.compress(path.read_bytes(), 9)) for path in static.rglob("*") if path.is_file())
    each = {key: median(visit[key] for visit in visits) for key in visits[0]}
    rows = [
        ["first rows, ms", f"{each['first']:.0f}", "under 600"],
        ["all rows known, ms", f"{each['all']:.0f}", ""],
        ["a key of the filter, ms (two frames are 33)", f"{each['key']:.0f}", "under 50"],
        ["the slowest key, ms", f"{each['worst']:.0f}", ""],
        ["sent for the first screen, without data, KB", f"{each['bytes'] / 1024:.1f}", "under 60"],
        ["all assets, compressed, KB", f"{whole / 1024:.1f}", "under 270"],
    ]
    show(f"The page with {TOOLS:,} tools, median of {VISITS} visits", ["", "now", "aim"], rows)
    seconds = {key: [visit[key] / 1000 for visit in visits] for key in ("first", "all", "key")}
    yield row(f"page: first rows of {TOOLS:,} tools", "ms", {OURS: seconds["first"]}, aim="under 600 ms")
    yield row(f"page: all rows of {TOOLS:,} tools", "ms", {OURS: seconds["all"]})
    yield row("page: a key of the filter", "ms", {OURS: seconds["key"]}, aim="under 50 ms")
    yield row("page: sent for the first screen", "KB", {OURS: [each["bytes"] / 1024]}, aim="under 60 KB")
    yield row("page: all assets, compressed", "KB", {OURS: [whole / 1024]}, aim="under 270 KB")
