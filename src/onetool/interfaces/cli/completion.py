"""`onetool completion SHELL`: completion of commands, options and tool names."""

import click

_WHERE = {
    "bash": '~/.bashrc:  eval "$(onetool completion bash)"',
    "zsh": '~/.zshrc:  eval "$(onetool completion zsh)"',
    "fish": "a shell:  onetool completion fish > ~/.config/fish/completions/onetool.fish",
}


@click.command(epilog="\b\nPut into " + "\n\b\nor into ".join(_WHERE.values()))
@click.argument("shell", type=click.Choice(list(_WHERE)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script for a shell."""
    from click.shell_completion import get_completion_class

    script = get_completion_class(shell)
    if script is None:
        raise click.ClickException(f"no completion for {shell}")
    click.echo(script(ctx.find_root().command, {}, "onetool", "_ONETOOL_COMPLETE").source())
