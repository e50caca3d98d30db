"""`onetool auth …`: stores API keys and other secrets, and never shows them."""

import sys
from functools import partial
from pathlib import Path

import click
from msgspec import to_builtins

from onetool.config import load_secrets
from onetool.config.include import SECRETS_IN_CONFIG, HostBoundSecret, check_kept, is_in_config
from onetool.core.model_providers import PROVIDERS, key_name
from onetool.core.text import or_rather
from onetool.interfaces.cli.options import config_option, data_options, find_here
from onetool.interfaces.cli.output import print_json, print_table, tell_running_servers, wants_json, warn_if_short
from onetool.interfaces.cli.trust import renew_trust
from onetool.services.secret_file import NAME, drop_secret, put_secret
from onetool.services.secrets import KEYRING_SERVICE, Secret, Secrets, load_keyring


def _hosts(_ctx: click.Context, _param: click.Parameter, hosts: tuple[str, ...]) -> tuple[str, ...]:
    for _, message, hint in HostBoundSecret(value=Secret(""), hosts=hosts).problems() if hosts else ():
        raise click.BadParameter(f"{message}; {hint}" if hint else message)
    return hosts


@click.group(
    no_args_is_help=True,
    help=f"""Store API keys and other secrets.

    A secret is named by a provider ({", ".join(PROVIDERS)}), or by its own name (BRAVE_API_KEY).
    """,
)
def auth() -> None: ...


@auth.command("set")
@click.argument("name")
@click.option("--keyring", "in_keyring", is_flag=True, help="Use the system's keyring instead of the secrets file.")
@click.option(
    "--host",
    "hosts",
    metavar="HOST",
    multiple=True,
    callback=_hosts,
    help="Bind the secret to this host, so it is sent nowhere else. May be repeated. http://HOST allows plain http.",
)
@click.option("--secret", "is_own", is_flag=True, help="NAME is the secret's own name, not a provider.")
@config_option
def set_secret(ctx: click.Context, name: str, in_keyring: bool, hosts: tuple[str, ...], is_own: bool) -> None:
    """Store a secret, typed or from standard input.

    A secret that is bound to hosts stays bound to them when it is set again. With --host, an empty input keeps the
    value of a secret that is stored already.
    """
    if in_keyring and hosts:
        raise click.UsageError("The keyring can't store hosts: leave out --keyring or --host.")
    secret = _secret_name(name, is_own)
    known, file = _secrets(ctx)
    if not (secret.isupper() or is_own or hosts or known.where(secret) or is_in_config(find_here(ctx).config, secret)):
        raise click.BadParameter(
            f"{name!r} is not a model provider ({', '.join(PROVIDERS)}){or_rather(name.lower(), PROVIDERS) or '.'} "
            f"To store a secret of that name: onetool auth set {name} --secret"
        )
    stored = known.get_stored(secret) if hosts else None  # an empty input keeps this value
    if sys.stdin.isatty():
        question = secret if stored is None else f"{secret} (Enter keeps its value)"
        value = click.prompt(question, hide_input=True, err=True, default=stored, show_default=False)
    else:
        value = sys.stdin.read().strip("\r\n") or stored or ""
    if not value and hosts:
        raise click.ClickException(f"{secret} is not stored yet, so there is no value to keep: type one.")
    if not value.strip() or not value.isprintable():
        raise click.ClickException("A secret is one line of text; nothing was stored.")
    warn_if_short(secret, value)
    hosts = hosts or known.hosts(secret)
    if in_keyring:
        with renew_trust(file, (secret,)):
            _put_into_keyring(secret, value)
        click.echo(f"{secret} is stored in the system's keyring.", err=True)
        return
    try:
        with renew_trust(file, (secret,)):
            put_secret(file, secret, value, partial(check_kept, secret, value), hosts)
    except (OSError, ValueError) as error:
        raise click.ClickException(f"Nothing was stored in {file}: {error}") from None
    untrusted = find_here(ctx).untrusted
    elsewhere = f", and not for {untrusted.folder}, which is not trusted" if untrusted else ""
    origins = ", ".join(host if "://" in host else f"https://{host}" for host in hosts)
    bound = f", and is sent to {origins} only" if hosts else ""
    click.echo(f"{secret} is stored in {file}{elsewhere}{bound}.", err=True)
    tell_running_servers(file)


@auth.command("list")
@data_options
def list_secrets(ctx: click.Context, as_json: bool) -> None:
    """List secrets, their sources and the hosts that they are bound to, not values."""
    from onetool.app.grants import secret_rows  # it loads HTTP, which the other commands don't need

    rows = secret_rows(load_secrets(find_here(ctx)))
    if wants_json(as_json):
        print_json([{key: value for key, value in to_builtins(row).items() if key != "use"} for row in rows])
        return
    cells = [(row.name, row.provider, row.source or "—", ", ".join(row.hosts) or "—") for row in rows]
    print_table("Secrets", ("name", "provider", "stored in", "bound to"), cells)


@auth.command()
@click.argument("name")
@config_option
def remove(ctx: click.Context, name: str) -> None:
    """Remove a secret."""
    secret = _secret_name(name)
    _, file = _secrets(ctx)
    try:
        gone = drop_secret(file, secret, partial(check_kept, secret, None)) | _drop_from_keyring(secret)
    except (OSError, ValueError) as error:
        raise click.ClickException(f"Can't write {file}: {error}") from None
    if not gone:
        raise click.ClickException(f"{secret} is stored neither in {file} nor in the keyring.")
    click.echo(f"Removed {secret}.", err=True)


def _secret_name(name: str, is_own: bool = False) -> str:
    if name.lower() in PROVIDERS and not is_own:
        return key_name(name)
    if not NAME.fullmatch(name):
        raise click.BadParameter(
            f"{name!r} is neither a provider ({', '.join(PROVIDERS)}) nor a name like BRAVE_API_KEY."
        )
    return name


def _secrets(ctx: click.Context) -> tuple[Secrets, Path]:
    """Load the secrets and their file without the app: the config may need the secret that is being set."""
    secrets = load_secrets(find_here(ctx))
    if secrets.file is None:
        raise click.ClickException(SECRETS_IN_CONFIG)
    return secrets, secrets.file


def _put_into_keyring(secret: str, value: str) -> None:
    keyring = load_keyring()
    if keyring is None:
        raise click.ClickException("--keyring needs the library keyring: pip install keyring.")
    try:
        keyring.set_password(KEYRING_SERVICE, secret, value)
    except Exception as error:  # noqa: BLE001 - each backend has errors of its own
        hint = "Leave out --keyring to use the secrets file."
        raise click.ClickException(f"The system's keyring refused it ({type(error).__name__}). {hint}") from None


def _drop_from_keyring(secret: str) -> bool:
    keyring = load_keyring()
    if keyring is None:
        return False
    try:
        keyring.delete_password(KEYRING_SERVICE, secret)
    except Exception:  # noqa: BLE001 - not there, locked, or no keyring at all
        return False
    return True
