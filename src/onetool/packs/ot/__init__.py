"""The pack `ot`: how an agent, or a person, learns what is there, gets help, reads large results, sees what happened.

`discovery` and `state` have the tools, made for one `View` of the app: this is no module of functions that is a pack as
it stands.
"""

from onetool.core.spec import ToolSpec
from onetool.packs.ot.discovery import discovery_tools
from onetool.packs.ot.state import state_tools
from onetool.packs.ot.view import View
from onetool.sdk.signature import tool_from_function

pack = "ot"

__all__ = ["ot_tools"]


def ot_tools(view: View) -> list[ToolSpec]:
    """The tools of the pack, for an app that can be seen so."""
    return [tool_from_function(function, pack) for function in (*discovery_tools(view), *state_tools(view))]
