"""What is started for `bench servers`: servers to borrow from, who calls them, and what stands in between."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from bench.mcp_contenders import ONETOOL, PEERS_PYTHON, QUIET, ROOT, Process

Block = dict[str, Any]
"""One server, as clients write it."""
Blocks = dict[str, Block]


class Harness:
    """The folder, and commands and blocks for what is started in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tally = folder / "tally"
        self.tally.touch()
        self._numbers = count()

    @property
    def started(self) -> int:
        """How many bare servers were, by anybody."""
        return len(self.tally.read_text().splitlines())

    def bare(self, transport: str, tools: int = 0, seconds: float = 0.0) -> Block:
        script = str(ROOT / "bench" / "servers_bare.py")
        return {"command": sys.executable, "args": ["-I", script, transport, f"{tools}", f"{seconds}", f"{self.tally}"]}

    @contextmanager
    def server(self, kind: str, transport: str) -> Iterator[Block]:
        """The block for one: its command, or the url of one that runs."""
        block = self.bare(transport)
        if kind == "sdk":
            args = ["-m", "bench.mcp_peers", "sdk-functions", transport, "0"]
            block = {"command": sys.executable, "args": args, "env": {"PYTHONPATH": str(ROOT)}}
        if transport == "stdio":
            yield block
            return
        with Process([block["command"], *block["args"]], self.folder, block.get("env", {}), "http") as server:
            yield {"url": f"http://127.0.0.1:{server.port}/mcp"}

    def caller(self, kind: str, blocks: Blocks) -> Process:
        python = str(PEERS_PYTHON) if "fastmcp" in kind else sys.executable
        command = [python, "-m", "bench.servers_callers", kind, json.dumps(blocks)]
        return Process(command, self.folder, {"PYTHONPATH": str(ROOT), "ONETOOL_HOME": str(self.home())})

    def home(self) -> Path:
        """Where nothing is remembered yet."""
        home = self.folder / f"home-{next(self._numbers)}"
        home.mkdir()
        return home

    def gateway(self, blocks: Blocks, home: Path | None = None) -> Block:
        """`onetool mcp` before those servers."""
        home = home or self.home()
        config = home / "onetool.yaml"
        config.write_text(json.dumps({"servers": blocks}))
        args = ["mcp", "--config", str(config), "--menu", "direct"]
        return {"command": ONETOOL, "args": args, "env": {"ONETOOL_HOME": str(home)}}

    def peer_gateway(self, blocks: Blocks, kind: str = "serve-fastmcp") -> Block:
        args = ["-m", "bench.servers_callers", kind, json.dumps(blocks)]
        return {"command": str(PEERS_PYTHON), "args": args, "env": {"PYTHONPATH": str(ROOT), **QUIET}}

    def process(self, block: Block) -> Process:
        return Process([block["command"], *block["args"]], self.folder, block["env"])
