"""`onetool tokens …`: adds, lists and revokes the named tokens of `onetool serve`.

The token goes to standard output, and everything else to standard error, so that a script can capture the token:
TOKEN=$(onetool tokens add ci).
"""

import json
import logging
import time
from contextlib import suppress
from typing import Any

import click

from onetool.app.access import accepts_any, as_stored, local_role, open_page_links, open_token_store
from onetool.app.token_admin import (
    add_token,
    check_name,
    closed_clients,
    requested_token,
    revoke_token,
    token_row,
    token_rows,
)
from onetool.config import Config, find, load_config
from onetool.core.errors import ConfigError
from onetool.core.principal import ROLES, Role
from onetool.database.connection import DatabaseAwayError, DatabaseError
from onetool.interfaces.cli.options import (
    complete_tools,
    completion,
    config_option,
    data_options,
    find_here,
    noted,
    open_app,
    split_names,
    warn_unmatched,
)
from onetool.interfaces.cli.output import echo, print_json, print_note, print_table, wants_json
from onetool.services.access_tokens import LOSS_FIX, StoredToken, TokenNameRevokedError, new_token, token_hash

NONE = "There are no named tokens. Create one: onetool tokens add NAME"
COLUMNS = ("name", "role", "tools", "rate", "expires", "where", "")
UNNAMED = "clients without a name"
MAY = {
    "call": "call tools, run code and ask",
    "edit": "call tools, run code, ask, and change bundles and examples",
    "admin": "do everything except create tokens",
}


@click.group(no_args_is_help=True)
def tokens() -> None:
    """Give people and programs tokens for `onetool serve`.

    Each token has a name, a role, and the tools that it may call. Data stored with a token belongs to its name. Only
    hashes of tokens are stored.
    """


@completion
def complete_token(config_file: str | None) -> list[str]:
    config = load_config(find(config_file))
    with open_token_store(config) as store:
        return [one.name for one in (*store.list(), *config.http.tokens)]


# `onetool tokens add`


@tokens.command()
@click.argument("name")
@click.option("--role", type=click.Choice(ROLES), default="call", show_default=True, help="What the token may do.")
@click.option(
    "--tools",
    "patterns",
    metavar="NAMES",
    multiple=True,
    callback=split_names,
    shell_complete=complete_tools,
    help="Allow only these tools: names and patterns (time.*), separated by commas. The default is all.",
)
@click.option("--rate", metavar="RATE", help="The maximum rate of requests: 600/min, 10/s, 5000/day.")
@click.option("--expires", metavar="WHEN", help="When the token expires: in 30d, 12h or 4w, or on a date (2027-01-01).")
@click.option("--no-whole", is_flag=True, help="Return large results as handles, even if a client wants them whole.")
@click.option(
    "--print", "only_print", is_flag=True, help="Store nothing: print the token, and its line for the config."
)
@click.option("--again", is_flag=True, help="Reuse a revoked name, for the same person or program.")
@data_options
@noted(unless="only_print")
def add(
    ctx: click.Context,
    name: str,
    role: Role,
    patterns: list[str] | None,
    rate: str | None,
    expires: str | None,
    no_whole: bool,
    only_print: bool,
    again: bool,
    as_json: bool,
) -> None:
    """Make a token. It is shown only once. Running servers accept it at once.

    \b
    onetool tokens add ci --tools 'time.*,web.get' --rate 600/min --expires 30d
    onetool tokens add anna --role edit
    """
    text = new_token()
    wanted = requested_token(
        name=name, hash=token_hash(text), role=role, tools=patterns, rate=rate, expires=expires, whole=not no_whole
    )
    for field, message, hint in wanted.problems():
        option = "NAME" if field == "name" else f"--{field}"
        hint = "write 30d, 12h or 4w from now, or a date: 2027-01-01" if field == "expires" else hint
        raise click.BadParameter(f"{message}; {hint}." if hint else f"{message}.", param_hint=option)
    config = _config(ctx)
    store = ctx.with_resource(open_token_store(config))
    try:
        replaced = check_name(name, config, store, only_print, again)
    except TokenNameRevokedError as error:
        same = "Add --again if it is for the same person or program; otherwise choose another name."
        raise click.ClickException(f"{error} {same}") from None
    token, where = as_stored(wanted), None
    if only_print:
        # JSON strings are valid in YAML.
        parts = {"name": wanted.name, "hash": wanted.hash, "tools": wanted.tools, "role": wanted.role}
        parts |= {"rate": wanted.rate, "expires": wanted.expires, "whole": None if wanted.whole else False}
        entry = ", ".join(f"{key}: {json.dumps(value)}" for key, value in parts.items() if value is not None)
        _print_token(text, token, as_json, "{" + entry + "}")
        place = f"in place of {replaced}" if replaced else "below http.tokens of the config"
        print_note(f"Nothing was stored: put the line {place}, and reload.")
    else:
        if (clients := closed_clients(config, store)) is not None:
            _warn_closed(config, clients)
        text, token = add_token(store, token)
        _print_token(text, token, as_json)
        untrusted = find_here(ctx).untrusted
        elsewhere = f", and not for {untrusted.folder}, which is not trusted" if untrusted else ""
        where = f"in {store.place}{elsewhere}"
    _print_usage(token, config, where)
    if patterns:
        packs = {pattern.partition(".")[0] for pattern in patterns}
        warn_unmatched("--tools", open_app(ctx, packs=packs, imports=False), patterns)


def _print_token(text: str, token: StoredToken, as_json: bool, line: str | None = None) -> None:
    """Print the token, and its `line` for the config, if any."""
    if as_json:
        more = {} if line is None else {"where": "config", "config": line}
        print_json({"token": text, **token_row(token), **more})
        return
    echo(text)
    if line is not None:
        echo(f"    - {line}")


def _warn_closed(config: Config, names: list[str]) -> None:
    """Warn that clients without a token are refused from now on, and name them, on standard error."""
    lines = [f"This is the first token. {_servers(config)} refuse clients without a token from now on."]
    if names:
        lines.append(
            f"Clients that called without a token in the last day: {', '.join(one or UNNAMED for one in names)}."
        )
    elif config.audit.mode == "none":
        lines.append("The clients that called without a token are unknown: the config says audit: none.")
    if role := local_role(config.http):
        lines.append(f"Clients on this machine may continue without a token, with the role {role} (http.local).")
    elif config.http.url is None:  # with a proxy http.local may have no effect
        hint = "set http.local to call or edit in the config, and reload the server"
        lines.append(f"To let clients on this machine continue without a token, {hint}.")
    for line in lines:
        print_note(line)


def _servers(config: Config) -> str:
    return f"Servers that use {config.home if config.database is None else 'this database'}"


def _running_server(config: Config) -> str | None:
    """Return the address of the server that runs with this state, if it is the only one."""
    with suppress(ConfigError, DatabaseError, TimeoutError), open_page_links(config) as links:
        addresses = [*links.servers()]
        return addresses[0] if len(addresses) == 1 else None
    return None


def _print_usage(token: StoredToken, config: Config, where: str | None) -> None:
    """Print what the token is for, where it was stored and how to use it, on standard error."""
    may = MAY[token.role] + (f", limited to the tools {', '.join(token.tools)}" if token.tools else "")
    lines = [f"This is the token of {token.name}, and is not shown again. It may {may}."]
    if not token.whole:
        lines.append("Large results are returned as handles, even if its client asks for them whole.")
    if token.expires is not None and token.expires <= time.time():
        lines.append("warning: it has already expired, so it is refused.")
    if where:
        lines.append(f"It is stored {where}. {_servers(config)} accept it at once.")
    http = config.http
    url = known = http.url.rstrip("/") if http.url else _running_server(config)
    if url is None:
        url = f"http://{f'[{http.host}]' if ':' in http.host else http.host}:{http.port}"
    lines.append(f'Use it, as ONETOOL_TOKEN: curl -H "Authorization: Bearer $ONETOOL_TOKEN" {url}/tools/tools')
    lines.append(f"MCP clients connect to {url}/mcp with the same header.")
    if known is None:
        lines.append("A server that was started with --host or --port has another address, which it prints.")
    for line in lines:
        print_note(line)


# `onetool tokens list`


@tokens.command("list")
@data_options
def list_tokens(ctx: click.Context, as_json: bool) -> None:
    """List the stored tokens, and the tokens in the config."""
    config = _config(ctx)
    store = ctx.with_resource(open_token_store(config))
    if store.view().problem == str(DatabaseAwayError()):  # the store's message is about changes, and this only reads
        raise click.ClickException("The database can't be reached: `onetool db` shows why.")
    rows = token_rows(config, store)
    if loss := store.loss:
        print_note(f"warning: {loss}. To fix it, {LOSS_FIX}.")
    if wants_json(as_json):
        print_json(rows)
    elif not rows:
        if loss is None:
            echo(NONE)
    else:
        print_table("Tokens", COLUMNS, map(_cells, rows))


def _cells(row: dict[str, Any]) -> list[str]:
    tools = row.get("tools")
    shown = "" if "tools" not in row else "all" if tools is None else ", ".join(tools) or "none"
    expires = (row.get("expires") or "")[:16].replace("T", " ")
    state = "" if row["state"] == "valid" else row["state"]
    state = ", ".join(filter(None, [state, "" if row.get("whole", True) else "no whole results"]))
    return [row["name"], row.get("role") or "", shown, row.get("rate") or "", expires, row["where"], state]


# `onetool tokens revoke`


@tokens.command()
@click.argument("name", shell_complete=complete_token)
@config_option
@noted(waits=False)
def revoke(ctx: click.Context, name: str) -> None:
    """Revoke a token immediately, including in running servers."""
    config = _config(ctx)
    store = ctx.with_resource(open_token_store(config))
    places = revoke_token(name, config, store)
    if places is None:
        print_note(f"{name} is already revoked.")
        return
    click.echo(f"{name} is revoked, also in running servers.", err=True)
    for place in places:
        print_note(f"The config still has it, without effect: remove {place}.")
    if not accepts_any(config.http, store):  # revoking the last token must not open the server
        click.echo(
            "No token is left, so the server refuses requests without one. Add one: onetool tokens add NAME. "
            "To allow requests from this machine without a token, set http.local to call or edit in the config.",
            err=True,
        )


def _config(ctx: click.Context) -> Config:
    logging.getLogger("onetool.serve").setLevel(logging.CRITICAL)  # it would repeat what the command prints
    return load_config(find_here(ctx))
