"""What the tests of the `ot` pack share: an app as its user has it, and an agent that gets at it by `run` alone.

    agent = Agent(tmp_path, packs=["brave", "demo"], aliases={"ws": "brave.web_search"})
    agent.value("ot.aliases()")      # the value of the code
    agent.reads("ot.aliases()")      # what a model reads of it

The config is a real file, the packs are real files in `packs/` beside it, and servers are real processes.
"""

import asyncio
import json
import sys
from pathlib import Path

from sources.mcp_servers.harness import block_of

from onetool import App

PACKS = {
    "brave": '''
from onetool.sdk import tool

@tool(examples=['brave.search(query="tea", count=3)'])
def search(query: str, count: int = 10) -> list[str]:
    """Search the web by Brave.

    Args:
        query: What to look for
        count: How many results to give

    Returns:
        Titles of pages, the best first.
    """
    return [f"{query} {number}" for number in range(count)]

def web_search(query: str) -> str:
    """Look for pages about something."""
    return f"pages about {query}"
''',
    "excel": '''
def read(file: str) -> str:
    """Read a sheet."""
    return file

def write(file: str, rows: list[list[str]]) -> int:
    """Write rows to a sheet."""
    return len(rows)
''',
    "demo": '''
def foo(n: int = 1) -> str:
    """Give foo."""
    return "foo" * n

def bar(n: int = 1) -> str:
    """Give bar."""
    return "bar" * n

def fails() -> None:
    """Fail, always."""
    raise RuntimeError("no")
''',
    "firecrawl": '''
def scrape(url: str) -> str:
    """Scrape one page."""
    return url

def crawl(url: str, depth: int = 2) -> str:
    """Follow the links of a site."""
    return url
''',
    "webpage": '''
def fetch(url: str) -> str:
    """Fetch a page of the web as text."""
    return url

def title(url: str) -> str:
    """Tell the title of a page."""
    return url
''',
    "web": '''
def fetch(url: str) -> str:
    """Fetch what is behind a URL."""
    return url
''',
    "scaffold": '''
def create(name: str) -> str:
    """Create a project from a template."""
    return name
''',
    "old_scaffold": '''
def build(name: str) -> str:
    """Build a project as it was done before."""
    return name
''',
    "llm": '''
def transform(input: str, prompt: str) -> str:
    """Change a text as a prompt says."""
    return f"{prompt}: {input}"
''',
}

SEARCH = {  # a tool of the server `github`
    "name": "search",
    "description": "Search code.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "repo": {"type": "string", "description": "Only in this repository"},
            "query": {"type": "string", "description": "What to look for"},
            "limit": {"type": "integer", "default": 10},
        },
        "required": ["query"],
    },
}
ISSUE = {
    "name": "open_issue",
    "description": "Open an issue.",
    "inputSchema": {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]},
}


class Agent:
    """An app with a config of its own, and somebody who writes code for it."""

    def __init__(self, folder, packs=(), prompts=None, **config):
        self.folder = folder
        self.file = folder / "onetool.yaml"
        (folder / "packs").mkdir(exist_ok=True)
        for name in packs:
            self.pack(name, PACKS[name])
        if prompts is not None:
            (folder / "prompts.yaml").write_text(json.dumps(prompts))
            config["prompts"] = "prompts.yaml"
        self.configure(**config)
        self.app = App.open(self.file)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.app.close()

    def configure(self, **config):
        self.file.write_text(json.dumps({"packs": ["./packs"], **config}))

    def pack(self, name, source):
        (self.folder / "packs" / f"{name}.py").write_text(source)

    def run(self, code, allowed=None):
        return asyncio.run(self.app.run(code, allowed))

    def value(self, code, allowed=None):
        """The value of code that does well."""
        result = self.run(code, allowed)
        assert result.ok, result.error
        return result.data

    def error(self, code):
        """What is wrong with code that fails."""
        result = self.run(code)
        assert not result.ok, result.data
        return result.error

    def reads(self, code):
        """What a model reads of code that does well."""
        result = self.run(code)
        assert result.ok, result.error
        return self.app.reply(result).text


def script(name, *args, **env):
    """The block of a server that is one of our scripts."""
    return block_of(name, *args, env=env)


def github(folder, *tools):
    """The block of a server with tools of our own making."""
    definitions = Path(folder) / "github.json"
    definitions.write_text(json.dumps(tools or [SEARCH, ISSUE]))
    return script("changes", DEFINITIONS=str(definitions))


def clock():
    """The block of somebody else's server."""
    return {"command": sys.executable, "args": ["-m", "mcp_server_time"]}
