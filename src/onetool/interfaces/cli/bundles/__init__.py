"""`onetool bundles`: lists, adds, changes and shares the tools that users store in bundles.

references    BUNDLE/TOOL@VERSION and what it stands for
requirements  secrets, hosts and functions that a tool needs before it can be called
show          list, show, search
change        create, enable, disable, delete, restore
add_tools     add, add-curl, save
share         export, import
"""

import click

from onetool.interfaces.cli.bundles.add_tools import add, add_curl, save
from onetool.interfaces.cli.bundles.change import create, delete, disable, enable, restore
from onetool.interfaces.cli.bundles.share import export, import_bundle
from onetool.interfaces.cli.bundles.show import list_bundles, search, show


@click.group(no_args_is_help=True)
def bundles() -> None:
    """Manage stored tools: HTTP requests and scripts.

    BUNDLE is a slug or an id, TOOL is a slug. The default @VERSION is the enabled one that was modified last.
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
