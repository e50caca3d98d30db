"""Declares every key of the config and of the prompts file: its type, its default and its limits.

Keys such as these control access to `onetool serve`:

    http:
      tokens:
        - {name: ci, hash: "sha256:…", tools: [time.*, web.*], role: call, rate: 600/min, expires: 2027-01-01}
      jwt:
        issuer: https://id.example.com
        audience: onetool
        jwks: https://id.example.com/jwks.json
        scopes: {"tools:call": {tools: [web.*], role: call}}
    audit: required

The prompts file contains instructions for models that replace or extend the built-in ones. Models read them again and
again, so each has a limit in tokens.

    instructions: …            # the instructions of the server
    run: …                     # the description of the tool `run`; the names of packs follow it
    packs: {excel: …}          # how to use a pack: shown by ot.packs(info="full") and ot.help("excel")
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import UNSET, Meta

from onetool.config.cluster import ClusterConfig
from onetool.config.findings import Findings
from onetool.core.errors import Mistake
from onetool.core.model_providers import ProviderName
from onetool.core.principal import Rate, Role
from onetool.core.text import count_tokens, lazy_pattern, read_time
from onetool.services.secrets import Secret, Secrets
from onetool.sources.catalogues import ToolDeclaration
from onetool.sources.mcp_servers.settings import ServerSettings as ServerSettings

Name = Annotated[str, Meta(min_length=1)]
Count = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]
Port = Annotated[int, Meta(ge=0, le=65535)]  # 0 lets the system choose one
Problem = tuple[str, str, str | None]  # the field, what is wrong with it, and a hint


# Access to `onetool serve`, and the audit log

OWN_TOKEN = "http.token"  # noqa: S105 - the name under which its calls appear

_TOKEN_NAME = lazy_pattern(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HASH = lazy_pattern(r"sha256:[0-9a-f]{64}")
_RATE = lazy_pattern(r"([1-9][0-9]{0,8})/(s|sec|min|h|hour|day)")
_SECONDS = {"s": 1, "sec": 1, "min": 60, "h": 3600, "hour": 3600, "day": 86400}
_PATTERN = lazy_pattern(r"[^\s,]+")


def read_rate(text: str) -> Rate | None:
    """Parse a rate: `600/min` -> 600 in 60 seconds; None if the text is not a rate."""
    match = _RATE.fullmatch(text)
    return Rate(int(match[1]), _SECONDS[match[2]]) if match else None


def token_name_problem(name: str) -> str | None:
    """Return why a token can't have this name. `|` and `:` occur in names of JWTs and of a web app's users."""
    if name == OWN_TOKEN:
        return f"{OWN_TOKEN} is reserved for the token in that key"
    if _TOKEN_NAME.fullmatch(name):
        return None
    return f"{name[:70]!r} is not a name: use up to 64 letters, digits, dots, dashes and underscores"


class TokenConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A named token. The config has only its hash; `onetool tokens add` creates both."""

    name: Name
    hash: Name
    tools: tuple[Name, ...] | None = None  # names and patterns of tools; None allows all
    role: Role = "call"
    rate: Name | None = None
    expires: Name | None = None
    whole: bool = True  # its clients may get large results whole

    def problems(self) -> Iterator[Problem]:
        if problem := token_name_problem(self.name):
            yield "name", problem, None
        if not _HASH.fullmatch(self.hash):
            hint = "`onetool tokens add NAME --print` creates a token and prints the line for the config"
            yield "hash", "must be sha256: and 64 hexadecimal digits", hint
        yield from _limit_problems(self.tools, self.rate)
        if self.expires is not None and read_time(self.expires) is None:
            yield "expires", f"{self.expires!r} is not a date", "write 2027-01-01, or 2027-01-01T12:00:00Z"


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """The rights of the holder of a scope or a claim in a JWT."""

    tools: tuple[Name, ...] | None = None
    role: Role = "call"
    rate: Name | None = None
    whole: bool = True

    def problems(self) -> Iterator[Problem]:
        yield from _limit_problems(self.tools, self.rate)


Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""Signatures with a public key. HMAC is not allowed: anyone who can check such a signature can also create one."""


class JwtConfig(msgspec.Struct, frozen=True, kw_only=True):
    """JWTs of an authorization server, besides tokens. A JWT without a matching scope or claim has no rights."""

    issuer: Name
    audience: Name | tuple[Name, ...] | None = None  # None: http.url, which is always accepted
    jwks: Name | None = None  # None: the issuer's metadata names it
    algorithms: tuple[Algorithm, ...] = ("RS256", "ES256", "EdDSA")
    leeway_s: Annotated[float, Meta(ge=0, le=300)] = 30.0  # the allowed difference between the issuer's clock and ours
    scopes: dict[str, Grant] = {}
    claims: dict[str, dict[str, Grant]] = {}  # claim -> value -> grant: {groups: {tool-admins: {role: admin}}}

    def problems(self) -> Iterator[Problem]:
        for field, url in (("issuer", self.issuer), ("jwks", self.jwks)):
            here = r"http://(localhost|127\.0\.0\.1|\[::1\])(:[0-9]{1,5})?(/|$)"
            if url is not None and not url.startswith("https://") and not re.match(here, url):
                yield field, f"{url!r} must begin with https://", "http:// is only allowed for this machine"
        if "|" in self.issuer:
            yield "issuer", f"{self.issuer!r} contains |, which separates issuer and subject in names", None
        if not self.algorithms:
            yield "algorithms", "the list is empty, so no JWT would be accepted", "remove the key"
        if not self.scopes and not self.claims:
            yield "scopes", "without scopes and claims, no JWT may do anything", 'write {"tools:call": {role: call}}'


class AuditConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The audit log of `onetool serve`. `audit: required` is a short form."""

    shorthand: ClassVar[str] = "mode"

    mode: Literal["usual", "required", "none"] = "usual"  # required: calls are refused while it can't be written
    retention_days: Count = 90
    max_mb: Count = 1024  # of the journal, about; the oldest rows beyond this are removed


class MetricsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A token that may read GET /metrics, in addition to admins. `metrics: ${METRICS_TOKEN}` is a short form."""

    shorthand: ClassVar[str] = "token"

    token: Annotated[Secret, Meta(min_length=16)] | None = None  # valid only for /metrics


class OtelConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The collector that receives traces and metrics over OTLP. `otel: http://localhost:4318` is a short form."""

    shorthand: ClassVar[str] = "endpoint"

    endpoint: Name  # of a collector for OTLP over HTTP; /v1/traces and /v1/metrics are appended
    headers: dict[str, Secret] = {}
    service: Name = "onetool"  # service.name

    def problems(self) -> Iterator[Problem]:
        if not re.fullmatch(r"https?://[^/?#\s@]+(/[^?#\s]*)?", self.endpoint):
            yield "endpoint", f"Invalid endpoint: {self.endpoint!r}", "write http://localhost:4318"


def _limit_problems(tools: tuple[str, ...] | None, rate: str | None) -> Iterator[Problem]:
    for one in tools or ():
        if not _PATTERN.fullmatch(one):
            yield "tools", f"{one!r} is neither a tool name nor a pattern", "write time.now, or time.*"
    if rate is not None and read_rate(rate) is None:
        yield "rate", f"{rate!r} is not a rate", "write a number and a time: 600/min, 10/s, 5000/day"


# The prompts file

PROMPTS_FILE = "prompts.yaml"  # the default, if it exists
PROMPT_TOKENS = {"instructions": 300, "run": 260, "packs": 1_000}


class PackText(msgspec.Struct, frozen=True, kw_only=True):
    """Instructions for one pack; a string is a short form."""

    shorthand: ClassVar[str] = "instructions"

    instructions: str


class PromptTexts(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of the prompts file."""

    instructions: str | None = None
    run: str | None = None
    packs: dict[str, PackText] = {}

    def problems(self) -> Iterator[tuple[str, str, str | None]]:
        given = [("instructions", "instructions", self.instructions), ("run", "run", self.run)]
        given += [("packs", f"packs.{name}", of.instructions) for name, of in self.packs.items()]
        for field, key, text in given:
            if text is not None and not text.strip():
                yield field, f"{key} is empty", "write a value, or remove the key"
            elif text is not None and count_tokens(text) > PROMPT_TOKENS[field]:
                most = PROMPT_TOKENS[field]
                message = (
                    f"{key} has about {count_tokens(text):,} tokens; "
                    f"the limit is {most:,}, about {4 * most:,} characters"
                )
                yield field, message, "shorten it: models read it with every request"


# The config

ParamType = Literal["string", "integer", "number", "boolean", "array", "object"]
_TYPES = {int: "integer", float: "number", bool: "boolean", list: "array", dict: "object"}
Menu = Literal["run", "search", "direct"]  # what MCP clients see
BARE = "bare"  # the menu of `serve --bare`: the tools of one MCP server under their own names


class Declared(ToolDeclaration, frozen=True):
    """An entry of `tools` as written. It is validated later, so that a wrong entry affects only itself."""

    @classmethod
    def from_data(cls, data: Any, path: str, findings: Findings) -> "Declared":
        file, line, key = findings.places.at(path)
        mistakes = [one for one in findings.of_tools if one.file == file and (one.key or "").startswith(key)]
        return cls(data, file, line, int(key[6:-1]), tuple(mistakes))


class FsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The folders that the `fs` pack may access.

    Roots are relative to the working folder, so they are stored as written.
    """

    roots: tuple[Name, ...] = (".",)


class Param(msgspec.Struct, frozen=True, kw_only=True):
    """A parameter of a snippet. It is required if it has no default. The default type is that of the default value."""

    type: ParamType | None = None
    default: Any = UNSET
    description: str = ""

    @property
    def kind(self) -> str:
        """The type of its values."""
        return self.type or _TYPES.get(type(self.default), "string")


class Snippet(msgspec.Struct, frozen=True, kw_only=True):
    """A template of code, used as `$name key=value`."""

    description: str = ""
    params: dict[str, Param] = {}
    body: str


class Topic(msgspec.Struct, frozen=True, kw_only=True):
    """A file to which `ot.notify` writes messages whose topic matches."""

    pattern: Name
    file: Path


class AllowedHost(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A host that HTTP tools may call; a string is a short form."""

    shorthand: ClassVar[str] = "host"

    host: Name
    allow_private: bool = False


class DefaultsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Defaults for tools without their own settings."""

    timeout_s: Seconds = 8.0  # not for tools of MCP servers and HTTP tools, which have their own
    retries: Annotated[int, Meta(ge=0, le=10)] = 0  # for tools declared as repeatable


class BundlesConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Limits for the bundles in `bundles/` beside the config."""

    max_tools: Count = 200_000


class RunConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Limits for one `run`."""

    timeout_s: Seconds = 30.0
    memory_mb: Count = 256
    max_calls: Count = 1000
    max_output_bytes: Count = 1024 * 1024
    workers: Count = 8  # runs at the same time
    typecheck: bool = False
    structured: bool = False  # MCP clients also get its value as data: {"result": …}


class ResultsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings for results that are too large to send whole, which are stored and sent as a handle."""

    inline_bytes: Count = 16 * 1024
    preview_bytes: Count = 4 * 1024
    ttl_s: Seconds = 3600.0
    max_total_mb: Count = 512
    link: bool = False  # MCP clients also get a link to the resource with the whole result

    @property
    def max_preview(self) -> int:
        """The maximum bytes of a preview: half the size that would be sent whole."""
        return min(self.preview_bytes, self.inline_bytes // 2)


class StatsConfig(msgspec.Struct, frozen=True, kw_only=True):
    enabled: bool = True
    retention_days: Count = 90
    max_rows: Count = 5_000_000  # of the journal; older rows beyond this are removed


class AskConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The model for `onetool ask`. Its key is a secret: see `onetool auth`."""

    provider: ProviderName | None = None
    model: Name | None = None
    base_url: Name | None = None
    max_steps: Count = 8
    menu: Literal["direct", "run"] = "direct"  # every tool, or `run` alone
    tools: tuple[Name, ...] | None = None  # the default of questions and sessions
    with_tools: bool = True  # the default of questions
    system: str | None = None  # replaces our own instructions
    max_tokens: Count | None = None  # of an answer
    context_tokens: Count | None = None  # the model's context window
    timeout_s: Seconds = 600.0  # for one step of the model

    def problems(self) -> Iterator[tuple[str, str, str | None]]:
        if self.base_url and not re.match(r"https?://[^/]", self.base_url):
            yield "base_url", "must begin with http:// or https:// and a host", "such as http://127.0.0.1:8000/v1"


class HttpConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The address of `onetool serve`, and the access to it."""

    host: Name = "127.0.0.1"
    port: Port = 8765
    token: Annotated[Secret, Meta(min_length=1)] | None = None  # an empty token would admit everyone
    tokens: tuple[TokenConfig, ...] = ()  # tokens of users and programs, each with its rights
    jwt: JwtConfig | None = None
    url: Name | None = None  # the server's public address, for example that of a proxy
    hosts: tuple[Name, ...] = ()  # further names of the server, such as a proxy's
    origins: tuple[Name, ...] = ()  # web pages of other origins that may use it
    max_body_mb: Count = 4
    access_log: bool = True
    admin: bool | None = None  # whether clients may change bundles; None: unless there is an allow-list `--tool-allow`
    local: Literal["call", "edit"] | None = None  # the role of clients on this machine without a credential

    def problems(self) -> Iterator[tuple[str, str, str | None]]:
        if self.token and not all("!" <= char <= "~" for char in self.token):
            yield (
                "token",
                "must consist of ASCII letters, digits and punctuation, without spaces, to fit into a header",
                None,
            )
        names = [one.name for one in self.tokens]
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield "tokens", f"two tokens have the name {name!r}", "rename one: stored data belongs to a name"
        hashes = [one.hash for one in self.tokens]
        for hash in sorted({hash for hash in hashes if hashes.count(hash) > 1}):
            same = " and ".join(one.name for one in self.tokens if one.hash == hash)
            hint = "create one for each: onetool tokens add NAME --print"
            yield "tokens", f"{same} have the same hash, so their callers can't be told apart", hint
        if self.url is not None and not re.fullmatch(r"https?://[^/?#\s]+(/[^?#\s]*)?", self.url):
            yield "url", f"{self.url!r} is not the address of a server", "write https://tools.example.com"
        if self.jwt is not None and not self.jwt.audience and not self.url:
            yield "jwt", "the audience of JWTs for this server is unknown", "set audience, or http.url"
        for host in self.hosts:
            if not re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[\w.-]+)(:\d{1,5})?", host):
                yield (
                    "hosts",
                    f"{host!r} is not a host",
                    "write a name or an address, with or without a port: example.com",
                )
        for origin in self.origins:
            if not re.fullmatch(r"[a-z][a-z0-9+.-]*://(\[[0-9a-fA-F:.]+\]|[\w.-]+)(:\d{1,5})?/?", origin.lower()):
                yield "origins", f"{origin!r} is not an origin", "write scheme and host: https://example.com"


class Keys(msgspec.Struct, frozen=True, kw_only=True, rename={"allowed_hosts": "allowedHosts"}):
    """The keys of a config file.

    The types decide how included files are merged: tuples are joined, dicts united, and other keys set once. `include`
    and `secrets` are read before the other keys, and contain the result.
    """

    tools: tuple[Declared, ...] = ()
    include: tuple[Path, ...] = ()  # all included files, directly or not
    packs: tuple[Path, ...] = ()
    settings: dict[str, dict[str, Any]] = {}
    fs: FsConfig = FsConfig()
    menu: Menu = "run"
    watch: bool | None = None  # None: servers that only this machine reaches watch settings
    servers: dict[str, ServerSettings] = {}
    aliases: dict[str, str] = {}
    snippets: dict[str, Snippet] = {}
    secrets: Secrets = msgspec.field(default_factory=Secrets)
    prompts: Path | None = None  # None: prompts.yaml beside this file
    topics: tuple[Topic, ...] = ()
    allowed_hosts: tuple[AllowedHost, ...] = ()
    bundles: BundlesConfig = BundlesConfig()
    defaults: DefaultsConfig = DefaultsConfig()
    run: RunConfig = RunConfig()
    results: ResultsConfig = ResultsConfig()
    stats: StatsConfig = StatsConfig()
    ask: AskConfig = AskConfig()
    http: HttpConfig = HttpConfig()
    audit: AuditConfig = AuditConfig()
    metrics: MetricsConfig = MetricsConfig()
    otel: OtelConfig | None = None  # None: nothing is sent or imported
    database: Annotated[Secret, Meta(min_length=1)] | None = None  # postgresql://…; None: files and SQLite
    cluster: ClusterConfig | None = None
    docs_url: bool = True  # whether help links to OneTool's documents for Python packs without a docs_url
    trust: Literal["usual", "strict"] = "usual"  # of projects; applies in the user's own config


class Config(Keys, frozen=True, kw_only=True):
    """The current config. `home` is the state folder: stats, results, bundles."""

    path: Path | None = None
    whose: Literal["named", "own", "project"] = "named"
    folder: Path | None = None  # the default folder of packs; None: beside the config
    project_packs: Path | None = None  # packs of a project without a config, used with the user's own
    home: Path
    texts: PromptTexts = PromptTexts()  # the content of the prompts file
    warnings: tuple[Mistake, ...] = ()

    @property
    def beside(self) -> Path:
        """The folder of the config; without one, the home."""
        return self.path.parent if self.path else self.home

    @property
    def is_home_in_project(self) -> bool:
        """Whether `home` has the same origin as the project."""
        return self.whose == "project" and self.path is not None and self.home == self.path.parent

    def __repr__(self) -> str:
        # Secrets hide themselves, but a secret may have become part of a path or a number.
        return self.secrets.redact(super().__repr__())
