"""`onetool init`: writes a starter config, or the entry for OneTool that an MCP client needs."""

import re
from pathlib import Path

import click

from onetool.interfaces.cli.options import config_option

# What is made by running, or must stay private, and so does not belong into a repository.
IGNORED = "stats.db*\nresults/\nsessions/\nservers/\nrun_history\nsecrets.yaml\n.*.lock\n__pycache__/\n"

# Here again: `onetool init` need not load them.
CLIENTS = ("claude-code", "claude-desktop", "cursor", "vscode", "codex", "gemini")
NO_URL = ""  # --http by itself


@click.command()
@click.option("--client", type=click.Choice(CLIENTS), help="Set up this MCP client instead of writing a config.")
@click.option("--write", is_flag=True, help="Put the entry into the client's file instead of printing it.")
@click.option("--user", is_flag=True, help="Use the client's file for all projects, not the one in FOLDER.")
@click.option(
    "--http",
    "url",
    metavar="[URL]",
    is_flag=False,
    flag_value=NO_URL,
    help="Let the client call a running `onetool serve` instead of starting `onetool mcp`.",
)
@click.option("--name", default="onetool", show_default=True, help="The name of the entry.")
@click.option(
    "--force", is_flag=True, help="Replace an existing config; with --client, an existing entry of that name."
)
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path), default=Path())
@config_option
@click.pass_context
def init(
    ctx: click.Context,
    folder: Path,
    client: str | None,
    write: bool,
    user: bool,
    url: str | None,
    name: str,
    force: bool,
) -> None:
    """Write a config, or set up an MCP client. The config is FOLDER/.onetool/onetool.yaml; FOLDER is the current one by
    default.
    """
    if client is None:
        given = {"--write": write, "--user": user, "--http": url is not None, "--name": name != "onetool"}
        for option in (option for option, is_given in given.items() if is_given):
            raise click.UsageError(f"{option} is for a client; say which: --client {'|'.join(CLIENTS)}.")
        _write_starter(folder, force)
        return
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
        raise click.BadParameter("a name has letters, digits, - and _, at most 64.", param_hint="--name")
    from onetool.interfaces.cli.clients import SetupOptions, set_up_client

    wish = SetupOptions(
        client=client,
        folder=folder,
        name=name,
        config=ctx.find_root().obj,
        write=write,
        user=user,
        http=url is not None,
        url=url or None,
        force=force,
    )
    set_up_client(wish)


def _write_starter(folder: Path, force: bool) -> None:
    from onetool.config.file_checks import is_inside
    from onetool.core.private_file import write_new
    from onetool.interfaces.cli.trust import renew_trust

    file = folder / ".onetool" / "onetool.yaml"
    if not is_inside(file, folder):
        raise click.ClickException(f"{file} would be written elsewhere, because of a link; remove the link.")
    if file.exists() and not force:
        raise click.ClickException(f"{file} is there already; --force replaces it.")
    try:
        with renew_trust(file):
            file.parent.mkdir(exist_ok=True)
            file.write_text(starter_config(), encoding="utf-8")
            write_new(file.with_name(".gitignore"), IGNORED)
    except OSError as error:
        raise click.ClickException(f"can't write {file}: {error.strerror}.") from None
    there = "" if folder == Path() else f"cd {folder}, "
    click.echo(f"Wrote {file}. Next: {there}onetool check, onetool tools list, onetool tools invoke weather.")
    click.echo(f"For an MCP client: onetool init --client {'|'.join(CLIENTS)} --write")


# The starter config


STARTER = """\
# OneTool's config. Every key has a default, so this file may be empty.
# Lines that begin with "#" and no space are settings to uncomment; `onetool check` tells you what is wrong.

# Tools declared right here. This one always gives the same answer: try  onetool tools invoke weather
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

# The folders that fs.read_file and fs.list_dir may see, relative to where you start OneTool.
#fs: {roots: [.]}

# A file of secrets beside this one (chmod 600), for ${NAME} above and below. The environment is asked after it.
#secrets: secrets.yaml
# In ~/.onetool alone: strict lets `onetool trust` pin the code of packs, too.
#trust: strict
#stats: {enabled: true, retention_days: 90}  # counts of calls, kept on this machine

# Short names for tools, and templates of code ($research topic=tea).
#aliases: {now: time.now}
#snippets:
#  research:
#    description: Say a topic a few times
#    params: {topic: {type: string, description: What to say}, count: {type: integer, default: 5}}
#    body: "[tools.echo(message='{{ topic }}') for _ in range({{ count }})]"

# Limits of the code in `run`, and of the results that are kept behind a handle.
#run: {timeout_s: 30, memory_mb: 256, max_calls: 1000, max_output_bytes: 1048576, workers: 8, typecheck: false,
#  structured: false}
#results: {inline_bytes: 16384, ttl_s: 3600, max_total_mb: 512}

# What MCP clients see: run (one tool that runs code), search (find and call), or direct (every tool by itself).
#menu: run

# Where `onetool serve` listens. Any host but this machine needs a token.
#http: {host: 127.0.0.1, port: 8765, token: "${ONETOOL_TOKEN}", hosts: [tools.example.com],
#       origins: ["https://app.example.com"], max_body_mb: 4, access_log: true, admin: true}

# MCP servers to borrow tools from: a command to start, or a url. Blocks of other clients can be pasted as they are
# (`disabled: true` is understood). `tools` picks some, `prefix` is its pack's name, `parallel` lets calls of a step of
# `ask` run side by side, `pin` refuses tools that are not as they were approved. More: onetool servers --help
#servers:
#  clock: {type: stdio, command: mcp-server-time, args: [], env: {TZ: UTC}, cwd: ., timeout: 10, enabled: true}
#  docs: {url: "http://127.0.0.1:9000/mcp", headers: {}, auth: "${DOCS_TOKEN}", connect_timeout: 30,
#         tools: [find], prefix: docs, parallel: true, pin: true, docs_url: "https://example.com/docs"}

#watch: false  # servers (onetool serve, onetool mcp) read everything again when files change
#docs_url: true  # help names OneTool's documents for packs that have no docs_url of their own

# Texts of your own for models: of the server, of `run`, of packs. And the files that ot.notify writes to.
#prompts: prompts.yaml
#topics: [{pattern: "notes*", file: notes.yaml}]

# Hosts that HTTP tools of bundles may call; none unless they are named here. And how many tools bundles may hold.
#allowedHosts: [api.example.com, {host: "localhost:9000", allowPrivate: true}]
#bundles: {max_tools: 200000}

# The model of `onetool ask`: openai (also any server that speaks its API), ollama, gemini or anthropic. Its key is kept
# by `onetool auth set openai`. It sees every tool (menu: direct), or one that runs code over them (menu: run).
#ask:
#  provider: openai
#  model: gpt-x
#  base_url: "http://127.0.0.1:8000/v1"
#  max_steps: 8
#  menu: direct
#  with_tools: true
#  tools: [time.now, weather]
#  system: You answer in one sentence.
#  max_tokens: 4096
#  context_tokens: 128000
#  timeout_s: 600
"""


def starter_config(example: bool = True) -> str:
    """A config to begin with: one tool that works, and every other key as a comment with its reason.

    Without the example that tool is a comment, too: who brings tools of their own should not hand it to an agent.
    """
    if example:
        return STARTER
    begin, end = STARTER.index("tools:"), STARTER.index("\n# More config files")
    commented = "".join(f"#{line}" for line in STARTER[begin:end].splitlines(keepends=True))
    return STARTER[:begin] + commented + STARTER[end:]
