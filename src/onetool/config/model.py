"""Every key of the config: its type, its default and its limits. How it is read follows from this."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import UNSET, Meta

from onetool.config.node import Findings, Node
from onetool.config.texts import Texts
from onetool.core.errors import Mistake
from onetool.services.secrets import Secret, Secrets
from onetool.sources.declared import Entry
from onetool.sources.mcp_servers.settings import Server as Server

Count = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]
Name = Annotated[str, Meta(min_length=1)]
ParamType = Literal["string", "integer", "number", "boolean", "array", "object"]
_TYPES = {int: "integer", float: "number", bool: "boolean", list: "array", dict: "object"}
Menu = Literal["run", "search", "direct"]  # what MCP clients are shown
Port = Annotated[int, Meta(ge=0, le=65535)]  # 0 lets the system choose one


class Declared(Entry, frozen=True):
    """One entry of `tools`, as it was written. A wrong one spoils itself alone, so it is not checked here."""

    @classmethod
    def from_node(cls, node: Node, findings: Findings) -> "Declared":
        from onetool.config.shape import plain  # what reads files is loaded when there is a file

        own = Findings()
        definition = plain(node, own)
        findings.add(own.warnings)
        return cls(definition, node.file, node.line, int(node.path[-1]), tuple(own.errors))


class Fs(msgspec.Struct, frozen=True, kw_only=True):
    """What the `fs` pack may touch. Roots are relative to the working folder, and so kept as written."""

    roots: tuple[Name, ...] = (".",)


class Param(msgspec.Struct, frozen=True, kw_only=True):
    """A parameter of a snippet. Without a default it must be given. Its type is that of the default, where none is."""

    type: ParamType | None = None
    default: Any = UNSET
    description: str = ""

    @property
    def kind(self) -> str:
        """What type its values have."""
        return self.type or _TYPES.get(type(self.default), "string")


class Snippet(msgspec.Struct, frozen=True, kw_only=True):
    """A template of code, used as `$name key=value`."""

    description: str = ""
    params: dict[str, Param] = {}
    body: str


class Topic(msgspec.Struct, frozen=True, kw_only=True):
    """Where `ot.notify` writes messages whose topic matches."""

    pattern: Name
    file: Path


class AllowedHost(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A host that HTTP tools may call. In the file a text alone will do."""

    shorthand: ClassVar[str] = "host"

    host: Name
    allow_private: bool = False


class Bundles(msgspec.Struct, frozen=True, kw_only=True):
    """Tools that people keep, in `bundles/` beside the config."""

    max_tools: Count = 200_000


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one `run`."""

    timeout_s: Seconds = 30.0
    memory_mb: Count = 256
    max_calls: Count = 1000
    max_output_bytes: Count = 1024 * 1024
    workers: Count = 8  # runs at the same time
    typecheck: bool = False
    structured: bool = False  # MCP clients get its value as data, too: {"result": …}


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """Results that are too large to send whole are kept behind a handle."""

    inline_bytes: Count = 16 * 1024
    ttl_s: Seconds = 3600.0
    max_total_mb: Count = 512


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    enabled: bool = True
    retention_days: Count = 90


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """The model behind `onetool ask`. Its key is a secret: see `onetool auth`."""

    provider: Literal["openai", "ollama", "gemini", "anthropic"] | None = None
    model: Name | None = None
    base_url: Name | None = None
    max_steps: Count = 8
    menu: Literal["direct", "run"] = "direct"  # every tool, or `run` alone
    tools: tuple[Name, ...] | None = None  # only these, where neither the question nor its session says which
    with_tools: bool = True  # where the question does not say it
    system: str | None = None  # in place of our own words to the model
    max_tokens: Count | None = None  # of an answer
    context_tokens: Count | None = None  # that the model takes in all
    timeout_s: Seconds = 600.0  # for one step of the model

    def problems(self) -> Iterator[tuple[str, str, str | None]]:
        if self.base_url and not re.match(r"https?://[^/]", self.base_url):
            yield "base_url", "must begin with http:// or https:// and a host", "such as http://127.0.0.1:8000/v1"


class Http(msgspec.Struct, frozen=True, kw_only=True):
    """Where `onetool serve` listens."""

    host: Name = "127.0.0.1"
    port: Port = 8765
    token: Annotated[Secret, Meta(min_length=1)] | None = None  # an empty one would let everybody in
    hosts: tuple[Name, ...] = ()  # further names that it is reached by, such as a proxy's
    origins: tuple[Name, ...] = ()  # web pages of other origins that may use it
    max_body_mb: Count = 4
    access_log: bool = True
    admin: bool | None = None  # whether clients may change bundles; None: unless `--tool-allow` says what they may call

    def problems(self) -> Iterator[tuple[str, str, str | None]]:
        if self.token and not all("!" <= char <= "~" for char in self.token):
            yield "token", "must be of letters, digits and signs of ASCII, without spaces: a header carries it", None
        for host in self.hosts:
            if not re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[\w.-]+)(:\d{1,5})?", host):
                yield "hosts", f"{host!r} is no host", "write a name or an address, with or without a port: example.com"
        for origin in self.origins:
            if not re.fullmatch(r"[a-z][a-z0-9+.-]*://(\[[0-9a-fA-F:.]+\]|[\w.-]+)(:\d{1,5})?/?", origin.lower()):
                yield "origins", f"{origin!r} is no origin", "write scheme and host: https://example.com"


class Keys(msgspec.Struct, frozen=True, kw_only=True, rename={"allowed_hosts": "allowedHosts"}):
    """What a config file may say.

    How files that include each other add up follows from the types: tuples are joined, dicts united, the rest is set
    once. `include` and `secrets` are read before the others, and hold what came of that.
    """

    tools: tuple[Declared, ...] = ()
    include: tuple[Path, ...] = ()  # every file that was included, directly or not
    packs: tuple[Path, ...] = ()
    settings: dict[str, dict[str, Any]] = {}
    fs: Fs = Fs()
    menu: Menu = "run"
    watch: bool = False
    servers: dict[str, Server] = {}
    aliases: dict[str, str] = {}
    snippets: dict[str, Snippet] = {}
    secrets: Secrets = msgspec.field(default_factory=Secrets)
    prompts: Path | None = None  # prompts.yaml beside this one, if there is none named
    topics: tuple[Topic, ...] = ()
    allowed_hosts: tuple[AllowedHost, ...] = ()
    bundles: Bundles = Bundles()
    run: Run = Run()
    results: Results = Results()
    stats: Stats = Stats()
    ask: Ask = Ask()
    http: Http = Http()
    docs_url: bool = True  # whether help has an address of the documents for packs that have none of their own
    trust: Literal["usual", "strict"] = "usual"  # of projects; counts in the person's own config


class Config(Keys, frozen=True, kw_only=True):
    """The config in force. `home` is where state lives: stats, results, bundles."""

    path: Path | None = None
    whose: Literal["named", "own", "project"] = "named"
    folder: Path | None = None  # where packs lie without being named; None: beside the config
    home: Path
    texts: Texts = Texts()  # what the file of prompts says
    warnings: tuple[Mistake, ...] = ()

    def __repr__(self) -> str:
        # Secrets hide themselves, but one may have become part of a path or a number.
        return self.secrets.redact(super().__repr__())
