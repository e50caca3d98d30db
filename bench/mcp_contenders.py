"""Who is measured, and how each is started and ended. Every process is ended by its own id, however we leave."""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple, Self

from bench.made import ADD, write_packs
from bench.mcp_client import Connection, Message, NoReply, Pipe, calling

ROOT = Path(__file__).parent.parent
ONETOOL = str(Path(sys.executable).with_name("onetool"))
PEERS_PYTHON = ROOT / ".venv-bench" / "bin" / "python"
PATIENCE = 5.0  # seconds for a server to end by itself
QUIET = {"FASTMCP_LOG_LEVEL": "ERROR", "FASTMCP_CHECK_FOR_UPDATES": "off", "FASTMCP_SHOW_SERVER_BANNER": "false"}


class Contender(NamedTuple):
    """One that is measured. The messages are what it takes for the same thing: 1 + 1 by code, and by a tool."""

    title: str
    run: Message | None
    add: Message | None
    over: tuple[str, ...] = ("stdio", "http")


_ADD = calling("add", {"a": 1, "b": 1})
OURS = Contender("OneTool", calling("run", {"code": "1+1"}), calling("calc__add", {"a": 1, "b": 1}))
PEERS = {
    "fastmcp": Contender("FastMCP", calling("execute", {"code": "return 1 + 1"}), _ADD),
    "sdk": Contender("official SDK", None, _ADD),
    "sdk-streaming": Contender("SDK by default", None, _ADD, ("http",)),
    "sdk-functions": Contender("SDK MCPServer", None, None, ("stdio",)),
}
FLOORS = {
    "bare": Contender("bare loop", None, _ADD, ("stdio",)),
    "echo": Contender("bare Starlette", None, _ADD, ("http",)),
}


def contenders() -> dict[str, Contender]:
    return {"onetool": OURS, **(PEERS if PEERS_PYTHON.exists() else {}), **FLOORS}


class Home:
    """A folder for what the servers read and write: a config of ours with so many tools, and the errors of all."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self.path = Path(self._folder.name)
        self._configs: dict[int, Path] = {}

    def config(self, tools: int) -> Path:
        """A config with `calc.add` and so many other tools in packs."""
        if tools not in self._configs:
            folder = self.path / f"{tools}-tools"
            packs = folder / "packs"
            packs.mkdir(parents=True)
            (packs / "calc.py").write_text(ADD)
            write_packs(packs, tools)
            self._configs[tools] = folder / "onetool.yaml"
            self._configs[tools].write_text("{}\n")
        return self._configs[tools]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()


class Process:
    """A server in a process of its own, over one transport. `wire` is a client's way to it."""

    def __init__(self, command: Sequence[str], folder: Path, env: Mapping[str, str], transport: str = "stdio") -> None:
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process lives
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env={"HOME": str(folder), "PATH": "", **env, **QUIET},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        self.port = 0
        try:
            if transport == "http":
                self.port = self._port()
            self.wire = Connection(self.port) if self.port else Pipe(self.process)
        except BaseException:
            self.close()
            raise

    def ask(self, message: Message) -> Any:
        """The result. Where there is none, this says what the server had to say."""
        try:
            return self.wire.ask(message)
        except (NoReply, ValueError) as error:
            raise type(error)(f"{error} {self.last_words()}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        assert self.process.stdin
        assert self.process.stdout
        with suppress(OSError):
            self.process.stdin.close()
        if self.port:  # else it ends with its input
            self.process.terminate()
        for end in (self.process.terminate, self.process.kill):
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                end()
        self.process.wait()
        self.process.stdout.close()
        self._errors.close()

    def _port(self) -> int:
        """Where it listens: it says so."""
        assert self.process.stdout
        for line in self.process.stdout:
            if line.startswith(b"{") and "port" in (told := json.loads(line)):
                return told["port"]
            if found := re.search(rb"http://127\.0\.0\.1:(\d+)", line):
                return int(found[1])
        raise NoReply(f"it does not start: {self.last_words()}")

    def last_words(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-2000:].decode(errors="replace")


class Server(Process):
    """One of the contenders."""

    def __init__(self, home: Home, name: str, transport: str, tools: int = 0, menu: str = "run") -> None:
        """`menu` is what ours shows; a peer shows its tools, or what its code mode makes of them for `run`."""
        env = {"PYTHONPATH": "" if name == "onetool" else str(ROOT)}
        super().__init__(_command(home, name, transport, tools, menu), home.path, env, transport)


def _command(home: Home, name: str, transport: str, tools: int, menu: str) -> list[str]:
    if name == "onetool":
        how = ["mcp"] if transport == "stdio" else ["serve", "--port", "0"]
        return [ONETOOL, *how, "--config", str(home.config(tools)), "--menu", menu]
    if name == "bare":
        return [sys.executable, str(ROOT / "bench" / "mcp_bare.py")]
    kind = "fastmcp-code" if name == "fastmcp" and menu == "run" else name
    python = sys.executable if name in FLOORS else str(PEERS_PYTHON)
    return [python, "-m", "bench.mcp_peers", kind, transport, str(tools)]
