"""The config that `onetool init` writes."""

STARTER = """\
# OneTool's config. Every key has a default, so this file may be empty.
# Lines that begin with "#" and no space are settings to uncomment; `onetool check` tells you what is wrong.

# Tools declared here. This one always returns the same value; try it: onetool tools invoke weather
tools:
  - name: weather
    description: The weather of today, made up
    type: function
    handler: weather
    parameters: {type: object, properties: {}}
    implementation: {type: mock, mock_response: {celsius: 21, sky: clear}}

# More config files, packs of Python tools (folders or files), and settings for packs by name.
#include: [more.yaml]
#packs: [./packs]
#settings: {brave: {timeout: 10}}

# The folders that fs.read_file and fs.list_dir may read, relative to where you start OneTool.
#fs: {roots: [.]}

# A file of secrets beside this one (chmod 600), for ${NAME} in this file; other names come from the environment.
#secrets: secrets.yaml
# Only in ~/.onetool: with strict, `onetool trust` also pins the code of packs.
#trust: strict
#stats: {enabled: true, retention_days: 90, max_rows: 5000000}  # calls are counted, on this machine only

# Short names for tools, and templates of code ($research topic=tea).
#aliases: {now: time.now}
#snippets:
#  research:
#    description: Repeat a topic
#    params: {topic: {type: string, description: What to repeat}, count: {type: integer, default: 5}}
#    body: "[tools.echo(message='{{ topic }}') for _ in range({{ count }})]"

# Limits of the code in `run`, and of results that are stored under a handle.
#run: {timeout_s: 30, memory_mb: 256, max_calls: 1000, max_output_bytes: 1048576, workers: 8, typecheck: false,
#  structured: false}
#results: {inline_bytes: 16384, preview_bytes: 4096, ttl_s: 3600, max_total_mb: 512, link: false}
#menu: run  # what MCP clients see: run (one tool that runs code), search (find and call), or direct (every tool)

# Where `onetool serve` listens. Clients on other machines need a token.
#http: {host: 127.0.0.1, port: 8765, token: "${ONETOOL_TOKEN}", hosts: [tools.example.com],
#       origins: ["https://app.example.com"], max_body_mb: 4, access_log: true, admin: true,
#       url: "https://tools.example.com",  # where clients reach it; `onetool tokens add` creates tokens with names:
#       tokens: [{name: ci, tools: [time.*], role: call, rate: 600/min, expires: 2099-01-01, whole: true,
#                 hash: "sha256:0000000000000000000000000000000000000000000000000000000000000000"}],
#       jwt: {issuer: "https://id.example.com", audience: onetool, jwks: "https://id.example.com/jwks.json",
#             algorithms: [RS256], leeway_s: 30, scopes: {"tools:call": {role: call}}, claims: {}}}
#audit: {mode: usual, retention_days: 90, max_mb: 1024}  # who called what; required: no call without a log entry
#metrics: {token: "${METRICS_TOKEN}"}  # lets Prometheus read /metrics, which otherwise needs the role admin
#otel: {endpoint: "http://localhost:4318", headers: {}, service: onetool}  # traces and metrics, sent over OTLP
# Several servers behind a balancer: PostgreSQL instead of files, and a key; one machine needs only `cluster: {}`.
#database: ${DATABASE_URL}
#cluster: {key: "${CLUSTER_KEY}"}

# MCP servers whose tools you use: a command to start, or a url. Blocks of other clients can be pasted unchanged
# (`disabled: true` works, too). `tools` selects tools, `prefix` is the name of the pack, `parallel` lets calls in one
# step of `ask` run concurrently, `pin` refuses tools that have changed since approval. More: onetool servers --help
#servers:
#  clock: {type: stdio, command: mcp-server-time, args: [], env: {TZ: UTC}, inherit: true, cwd: ., enabled: true}
#  docs: {url: "http://127.0.0.1:9000/mcp", headers: {}, auth: "${DOCS_TOKEN}", connect_timeout: 30, replicate: true,
#    tools: [find], prefix: docs, parallel: true, pin: true, timeout: 10, strict: true, docs_url: "https://example.com"}

#docs_url: true  # help links to OneTool's docs for Python packs without a docs_url

# Your own texts for models: for the server, for `run` and for packs. And the files that ot.notify writes to.
#prompts: prompts.yaml
#topics: [{pattern: "notes*", file: notes.yaml}]

# Hosts that HTTP tools of bundles may call (none by default), and the maximum number of tools in bundles.
#allowedHosts: [api.example.com, {host: "localhost:9000", allowPrivate: true}]
#bundles: {max_tools: 200000}
#defaults: {timeout_s: 8, retries: 0}  # for tools without these settings; only repeatable tools are retried

# The model of `onetool ask`: openai (also any server with its API), or one of `onetool auth list`. Store its key:
# onetool auth set openai. The model sees every tool (menu: direct), or one tool that runs code (menu: run).
#ask: {provider: openai, model: gpt-x, base_url: "http://127.0.0.1:8000/v1", system: You answer in one sentence.,
#      tools: [time.now, weather], with_tools: true, menu: direct, max_steps: 8, max_tokens: 4096,
#      context_tokens: 128000, timeout_s: 600}
"""


def starter_config(example: bool = True) -> str:
    """Return a config to begin with: one tool that works, and the other keys except `watch` as comments that explain
    them.

    Without the example, that tool is a comment, too: users with their own tools should not expose it to an agent.
    """
    if example:
        return STARTER
    begin, end = STARTER.index("tools:"), STARTER.index("\n# More config files")
    commented = "".join(f"#{line}" for line in STARTER[begin:end].splitlines(keepends=True))
    return STARTER[:begin] + commented + STARTER[end:]
