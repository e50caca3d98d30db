"""`onetool auth …`: stores API keys and other secrets, and never shows them."""

import sys
from functools import partial
from pathlib import Path

import click

from onetool.app.operations.auth import secret_name
from onetool.config import load_secrets
from onetool.config.fill import SECRETS_IN_CONFIG, HostBoundSecret, check_kept, is_in_config
from onetool.core.model_providers import PROVIDERS
from onetool.core.text import or_rather
from onetool.interfaces.cli.operations import add_to
from onetool.interfaces.cli.options import config_option, find_here
from onetool.interfaces.cli.output import tell_running_servers, warn_if_short
from onetool.interfaces.cli.trust import renew_trust
from onetool.services.secret_file import put_secret
from onetool.services.secrets import KEYRING_SERVICE, Secret, Secrets, load_keyring
from onetool.sources.bundles.errors import InvalidError


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
    secret = _named(name, is_own)
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


def _named(name: str, is_own: bool) -> str:
    try:
        return secret_name(name, is_own)
    except InvalidError as error:
        raise click.BadParameter(f"{error.what}.") from None


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


add_to(auth)
