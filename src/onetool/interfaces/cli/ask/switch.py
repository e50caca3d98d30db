"""`--with-tools`, `--with-tools=false`, `--with-tools false`: a flag that may have a value, before a prompt or behind.

The parser would take whatever comes next for the value, and with it the prompt. So the value is put where it belongs
before anything is parsed: the very next word, if it is true or false, and else none.
"""

from collections.abc import Iterator

import click

from onetool.core.failure import cut
from onetool.interfaces.cli.output import printable

SWITCH = "--with-tools"
VALUES = ("true", "false")
MOST_SHOWN = 60  # characters of a question


class WithSwitch(click.Command):
    """A command that has this switch."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = list(joined(args))
        try:
            return super().parse_args(ctx, [*words])
        except click.NoSuchOption as error:
            raise _question_with_a_dash(words, error) or error from None


def _question_with_a_dash(words: list[str], error: click.NoSuchOption) -> click.UsageError | None:
    """What has spaces in it is no option, but a question that looks like one."""
    for word in words:
        if word.startswith(error.option_name) and " " in word:
            shown = printable(cut(word, MOST_SHOWN)).replace("\n", " ")
            hint = f'A question that begins with a dash stands behind --: onetool ask -- "{shown}"'
            return click.UsageError(hint, error.ctx)
    return None


def joined(args: list[str]) -> Iterator[str]:
    """The same words, the switch with its value in one of them."""
    rest = iter(args)
    for word in rest:
        if word == "--":
            yield word
            yield from rest
        elif word == SWITCH:
            yield from _switched(next(rest, None), rest)
        else:
            yield word


def _switched(following: str | None, rest: Iterator[str]) -> Iterator[str]:
    if following is not None and following.lower() in VALUES:
        yield f"{SWITCH}={following}"
        return
    yield f"{SWITCH}=true"
    if following is not None:
        yield from joined([following, *rest])
