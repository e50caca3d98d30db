"""`onetool bundles …`: tools that people keep: look at them, add, switch, share. The rules are the shelf's, as in REST.

places    BUNDLE/TOOL@VERSION, and what is meant by it    listing    all that there is, page by page
looking   list, show, search; one_tool: one in full       needs      what a tool needs before it can be called
changing  create, enable, disable, delete, restore        telling    what to do next, for the reader
adding    add, add-curl                                   whole      new tools, or a whole new bundle, into the store
saving    save; arguments: what code leaves open          keeping    secrets that came with a tool
sharing   export, import; arriving: one import            given      what a file, a URL or standard input holds
"""

import click

from onetool.interfaces.cli.bundles.adding import add, add_curl
from onetool.interfaces.cli.bundles.changing import create, delete, disable, enable, restore
from onetool.interfaces.cli.bundles.looking import list_bundles, search, show
from onetool.interfaces.cli.bundles.saving import save
from onetool.interfaces.cli.bundles.sharing import export, import_bundle


@click.group(no_args_is_help=True)
def bundles() -> None:
    """Bundles of tools that you keep: HTTP requests, scripts, functions.

    BUNDLE is a slug or an id, TOOL a slug. Without @VERSION the enabled one is meant that was modified last.
    """


for command in (
    list_bundles,
    show,
    search,
    create,
    add,
    add_curl,
    save,
    enable,
    disable,
    delete,
    restore,
    export,
    import_bundle,
):
    bundles.add_command(command)
