"""`--with-tools`, `=false`, ` false`: before the prompt and behind it, which it never swallows."""

import click
from click.testing import CliRunner
from helpers import each

from onetool.interfaces.cli.ask import WithToolsCommand, ask, join_switch_value


@click.command(cls=WithToolsCommand)
@click.argument("words", nargs=-1)
@click.option("--with-tools", type=click.BOOL, default=True)
def command(words, with_tools):
    click.echo(f"{words} {with_tools}")


@each(
    ("args", "words", "with_tools"),
    [
        (["q"], ["q"], True),
        (["--with-tools", "q"], ["q"], True),
        (["q", "--with-tools"], ["q"], True),
        (["--with-tools=true", "q"], ["q"], True),
        (["--with-tools=false", "q"], ["q"], False),
        (["q", "--with-tools=false"], ["q"], False),
        (["--with-tools", "false", "q"], ["q"], False),
        (["q", "--with-tools", "FALSE"], ["q"], False),
        (["--with-tools", "false"], [], False),
        (["--with-tools", "falsehoods"], ["falsehoods"], True),
        (["--with-tools", "--", "false"], ["false"], True),
        (["--", "--with-tools"], ["--with-tools"], True),
        (["--with-tools", "--with-tools", "false", "q"], ["q"], False),
        (["--with-tools", "-"], ["-"], True),
    ],
)
def test_the_prompt_is_left_alone(args, words, with_tools):
    assert CliRunner().invoke(command, args).output == f"{tuple(words)} {with_tools}\n"


def test_it_is_the_parser_of_ask():
    assert isinstance(ask, WithToolsCommand)
    assert list(join_switch_value(["a", "--system", "--with-tools=x"])) == ["a", "--system", "--with-tools=x"]
    refused = CliRunner().invoke(ask, ["q", "--with-tools=perhaps"])
    assert refused.exit_code == 2
    assert "--with-tools" in refused.output
