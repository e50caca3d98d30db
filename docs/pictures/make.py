"""Draws the pictures of the docs: `python docs/pictures/make.py [NAME…]`. They show what the command line prints, and
the page that it writes, for which a browser is needed."""

import os
import pty
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import Timer

from rich.console import Console
from rich.text import Text

HERE = Path(__file__).parent
COLUMNS = 96
SHOP_FILE = HERE.parent.parent / "examples" / "run" / "onetool.yaml"
SHOP = ["--config", str(SHOP_FILE), "run"]
CODE = """import asyncio
names = shop.find(kind="food")
prices = await asyncio.gather(*[shop.price(name=name) for name in names])
dict(zip(names, prices))"""
SERVERS = """\
servers:
  time: {command: mcp-server-time}
  git: {command: mcp-server-git, pin: true}
  fetch: {command: mcp-server-fetch, disabled: true}
  notes: {command: notes-server}
  wiki: {url: "http://127.0.0.1:9/mcp"}
"""
CONFIGS = {"servers": SERVERS}  # for pictures that would have nothing to show without
# Each picture shows some commands, one after the other.
PICTURES = {
    "tools-list": [["tools", "list"]],
    "tools-invoke": [["tools", "invoke", "fs.list_dir", "--args", '{"pth": ".", "maxDepth": "deep"}']],
    "run": [
        [*SHOP, CODE],
        [*SHOP, 'shop.find()\nshop.price(nmae="tea", count="two")'],
        [*SHOP, "$bill kind=drink count=2"],
    ],
    "ask": [["ask", "--approve", "always", "What do we have to eat, and what does it cost?"]],
    "serve": [["serve"]],
    "servers": [["servers", "list"]],
}
PAGE = "stats-report"
SERVES = 2.0  # seconds, after which a server has said what it has to say


def printed(args: list[str], config: str | None = None) -> str:
    """What a command shows on a terminal."""
    leader, follower = pty.openpty()
    with tempfile.TemporaryDirectory() as folder:
        env = {"HOME": folder, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "PATH": os.environ["PATH"]}
        if config is not None:
            place = Path(folder, ".onetool", "onetool.yaml")
            place.parent.mkdir()
            place.write_text(config)
        command = [sys.executable, "-m", "onetool", *args]
        process = subprocess.Popen(command, cwd=folder, env=env, stdout=follower, stderr=follower)
        os.close(follower)
        if args == ["serve"]:
            Timer(SERVES, process.kill).start()  # without its last words
        shown = b""
        while True:
            try:
                chunk = os.read(leader, 65536)
            except OSError:
                break
            if not chunk:
                break
            shown += chunk
        process.wait()
    os.close(leader)
    return shown.decode().replace("\r\n", "\n")


def draw(name: str, commands: list[list[str]]) -> None:
    with open(os.devnull, "w") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere, force_terminal=True)
        for args in commands:
            shown = args[2:] if args[0] == "--config" else args  # where the example lies is not the point
            words = " ".join(f"'{arg}'" if {"{", "\n", "$", " "} & set(arg) else arg for arg in shown)
            console.print(Text(f"$ onetool {words}", style="bold"))
            console.print(Text.from_ansi(printed(args, CONFIGS.get(name))))
        picture = console.export_svg(title="onetool", unique_id=name)
    # The fonts would be fetched from a network; any fixed-width font does.
    picture = re.sub(r"@font-face \{.*?\}", "", picture, flags=re.DOTALL)
    picture = "\n".join(line.rstrip() for line in picture.splitlines() if line.strip()) + "\n"
    (HERE / f"{name}.svg").write_text(picture)


@contextmanager
def model() -> Iterator[None]:
    """For `ask`: the tests' own, which says what it is told to. The calls are real."""
    sys.path.insert(0, str(HERE.parent.parent / "tests"))
    from ask.stand_in import Says, StandIn, Wants

    prices = [Wants("shop__price", {"name": name}) for name in ("bread", "cheese")]
    with StandIn(keys=False) as stand_in:
        stand_in.will(
            Says("Let me look.", calls=[Wants("shop__find", {"kind": "food"})], usage=(2140, 18)),
            Says(calls=prices, usage=(2201, 34)),
            Says("There is bread for 3.20 and cheese for 8.90.", usage=(2287, 21)),
        )
        where = f'provider: ollama, model: qwen3, base_url: "{stand_in.urls["ollama"]}"'
        CONFIGS["ask"] = f"include: [{SHOP_FILE}]\nask: {{{where}}}\n"
        yield


def photograph(name: str) -> None:
    """The report of the stats, with numbers that the tests have too, in their browser."""
    sys.path.insert(0, str(HERE.parent.parent / "tests"))
    from browser.chromium import chromium
    from browser.summaries import usual

    from onetool.services.journal.report import report

    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        file = Path(folder, "report.html")
        file.write_text(report(usual(tools=12)), encoding="utf-8")
        with browser.page(file, width=1100) as page:
            (HERE / f"{name}.png").write_bytes(page.picture())


for picture_name in sys.argv[1:] or [*PICTURES, PAGE]:
    if picture_name == PAGE:
        photograph(picture_name)
    else:
        with model() if picture_name == "ask" else nullcontext():
            draw(picture_name, PICTURES[picture_name])
