"""`onetool page`: prints a link that opens the page of a running server as its owner, or gives it to a browser."""

from contextlib import suppress
from html import escape

import click

from onetool.app.access import open_page_links
from onetool.config import Config, load_config
from onetool.core.os_files import replace_file
from onetool.core.state_folders import PAGE_FILE, make_home
from onetool.interfaces.cli.options import config_option, find_here, noted
from onetool.interfaces.cli.output import echo

NO_SERVER = (
    "No running server uses {}{}. Start one: onetool serve. Reload a server that was started here before this folder "
    "existed: kill -HUP PID. If other machines can reach the server, or it belongs to a cluster, sign in with a token "
    "instead: onetool tokens add NAME --role admin"
)
LINK_NOTE = "Open the page as its owner (the link works once, within ten minutes):"


@click.command()
@click.option("--port", type=click.IntRange(1, 65535), metavar="N", help="The port, if several servers run.")
@click.option("--open", "opens", is_flag=True, help="Open the link in a browser instead of printing it.")
@config_option
@noted()
def page(ctx: click.Context, port: int | None, opens: bool) -> None:
    """Print a link that opens the page of a running server.

    The link works once, within ten minutes, and starts a session with the role admin in that browser. The session ends
    with the server, after 12 hours, or when you sign out.
    """
    config = load_config(find_here(ctx))
    with open_page_links(config) as links:
        servers = {url: id for url, id in links.servers().items() if port is None or url.endswith(f":{port}")}
        if not servers:
            raise click.ClickException(NO_SERVER.format(config.home, "" if port is None else f" on port {port}"))
        if len(servers) > 1:
            raise click.ClickException(f"Several servers run: choose one with --port ({', '.join(sorted(servers))}).")
        [(url, server)] = servers.items()
        link = _link(url, links.make(server))
    if not opens or not open_in_browser(config, link):
        click.echo(LINK_NOTE, err=True)
        echo(link)


def new_link(config: Config, url: str) -> str | None:
    """Return a new link to the page of the server at this URL; None if no server there accepts links."""
    with open_page_links(config) as links:
        server = links.servers().get(url)
        return None if server is None else _link(url, links.make(server))


def _link(url: str, key: str) -> str:
    return f"{url}/#k={key}"


def open_in_browser(config: Config, link: str) -> bool:
    """Open a link in a browser. Returns whether a browser was found.

    The browser gets a file that redirects: other users could read the link in the arguments of its process.
    """
    import webbrowser

    file, is_open = config.home / PAGE_FILE, False
    with suppress(OSError):
        make_home(config.home)
        replace_file(file, f'<meta http-equiv="refresh" content="0; url={escape(link)}">\n'.encode())
        is_open = webbrowser.open(file.as_uri())
    if not is_open:
        click.echo("No browser could be started. Get a link for one: onetool page", err=True)
    return is_open
