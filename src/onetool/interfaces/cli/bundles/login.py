"""`onetool bundles login` and `logout`: a person's login for HTTP tools with the grant authorizationCode."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import click

from onetool.core.errors import OneToolError
from onetool.interfaces.cli.bundles.references import (
    ReferenceType,
    ToolReference,
    all_tools,
    complete_ref,
    find_bundle,
    find_tool,
)
from onetool.interfaces.cli.options import config_option, open_app
from onetool.interfaces.cli.output import printable

if TYPE_CHECKING:
    from onetool.app import App
    from onetool.database.documents import Documents
    from onetool.http.oauth_login import ToolLogin
    from onetool.sources.bundles.service import Shown


class BundleLogin(NamedTuple):
    """One login of a bundle, with the origins of all tools there that share it."""

    login: "ToolLogin"
    origins: list[str]
    tools: list[str]


@click.command()
@click.argument("place", metavar="BUNDLE[/TOOL]", type=ReferenceType(), shell_complete=complete_ref)
@config_option
@click.pass_context
def login(ctx: click.Context, place: ToolReference) -> None:
    """Log in in the browser for the HTTP tools of a bundle, or for one of them.

    Tools of a bundle with the same authorization server, client and scope share one login. It is kept for the next
    time, and is for the hosts that these tools call now.
    """
    import asyncio

    from onetool.http.oauth_login import log_in

    app = open_app(ctx, imports=False)
    bundle, found = _logins(app, place)
    for one in found:
        work = log_in(one.login, bundle["slug"], one.origins, say=lambda text: click.echo(text, err=True))
        try:
            scope = asyncio.run(work)
        except OneToolError as error:
            raise click.ClickException(printable(f"{bundle['slug']}: {app.runtime.redact(str(error))}")) from None
        rights = f" ({scope})" if scope else ""
        tools = ", ".join(sorted(one.tools))
        click.echo(printable(f"Logged in for {bundle['slug']}{rights}. It is for {tools}."), err=True)


@click.command()
@click.argument("place", metavar="BUNDLE[/TOOL]", type=ReferenceType(), shell_complete=complete_ref)
@config_option
@click.pass_context
def logout(ctx: click.Context, place: ToolReference) -> None:
    """Forget all logins for a bundle, or the one for a tool and those that share it."""
    from onetool.http.login import forget

    bundle, logins, names = _stored(open_app(ctx, imports=False), place)
    if not [name for name in names if forget(logins, name)]:
        raise click.ClickException(f"there is no login for {place}.")
    click.echo(f"The login for {bundle['slug']} is forgotten.", err=True)


def _stored(app: "App", place: ToolReference) -> "tuple[Shown, Documents, list[str]]":
    """The bundle, where logins are kept, and the names of all of the bundle's, or of those that its tool has.

    A bundle's are found by their names: its tools may have changed since the login, or a secret of theirs is not set.
    """
    from onetool.http.login import login_documents
    from onetool.http.oauth_login import stored_logins

    logins = login_documents(app.runtime.documents("logins"))
    if place.tool is not None:
        bundle, found = _logins(app, place)
        return bundle, logins, [one.login.store.name for one in found]
    bundle = find_bundle(app.bundles, place.bundle)
    return bundle, logins, stored_logins(logins, bundle["id"])


def _logins(app: "App", place: ToolReference) -> "tuple[Shown, list[BundleLogin]]":
    """The bundle, and the logins that it has, or that its tool has."""
    bundle = find_bundle(app.bundles, place.bundle)
    wanted = None if place.tool is None else find_tool(app.bundles, bundle, place)["id"]
    found: dict[str, BundleLogin] = {}
    ids: set[str] = set()  # of the logins of the tool that is named
    for tool in all_tools(app.bundles, bundle["id"]):
        is_wanted = wanted in (None, tool["id"])
        try:
            needed = list(_logins_of(app, tool))
        except OneToolError as error:  # a secret is not set
            if is_wanted:
                raise click.ClickException(printable("; ".join([str(error), *getattr(error, "hints", ())]))) from None
            continue
        for login, origin in needed:
            known = found.setdefault(login.key, BundleLogin(login, [], []))
            known.origins.extend([origin] if origin not in known.origins else [])
            known.tools.extend([tool["slug"]] if tool["slug"] not in known.tools else [])
            if is_wanted:
                ids.add(login.key)
    if not ids:
        whose = "none of its tools has" if wanted is None else "it does not have"
        raise click.ClickException(f"{place} needs no login: {whose} an auth with the grant authorizationCode.")
    return bundle, [one for key, one in found.items() if key in ids]


def _logins_of(app: "App", tool: "Shown") -> Iterator[tuple["ToolLogin", str]]:
    """The logins that a tool needs, each with where its requests go; none if its file can't be read.

    Raises ToolFailure if a secret that it names is not set.
    """
    if tool["type"] != "http":
        return
    from onetool.app.findings import read_http_tool
    from onetool.http.oauth_login import LoginAuthenticator

    made, context = read_http_tool(tool), app.runtime.http_context
    for one in () if made is None else made.authenticators:
        if isinstance(one, LoginAuthenticator):
            yield one.login(context.secret or app.runtime.secret, context), one.origin
