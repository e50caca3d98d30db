"""`onetool chat`: questions one after the other in one session, and tools that the person calls in between.

loop       reads one turn, a line or several, and does what it says: asks the model, calls a tool, or runs a command
commands   `/help`, `/tools`, `/model`, `/session`, `/quit`, and completion of all that can be typed

At a terminal lines are edited, completed and remembered. In a pipe each line is a turn, and only answers, values and
lists go to standard output.
"""

from typing import Any

import click

from onetool.interfaces.cli.ask import WithToolsCommand, model_options, read_options
from onetool.interfaces.cli.options import config_option, open_app


@click.command(cls=WithToolsCommand)
@model_options
@config_option
@click.pass_context
def chat(ctx: click.Context, **given: Any) -> None:
    """Talk with a model that has your tools at hand, question by question; Ctrl-C stops an answer, Ctrl-D ends.

    `+tool key=value` calls a tool yourself: the model reads the call and its result with your next question. Tab
    completes tools and their arguments. `/help` lists the commands. Three quotes begin and end a text of several
    lines; so does a backslash at the end of a line. What begins with a space is always a question.

    In a pipe each line is a turn; exit code 0 when all went well, 1 when one failed.

    \b
    onetool chat
    onetool chat --session last
    printf '+fs.list_dir path=.\\nWhich of these is the largest?\\n' | onetool chat
    """
    options = read_options(given)
    from onetool.interfaces.cli.chat.loop import ChatLoop

    ctx.exit(ChatLoop(open_app(ctx, options["allowed"]), options).run())
