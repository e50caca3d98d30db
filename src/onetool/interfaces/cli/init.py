"""`onetool init`: a starter config, with comments."""

from pathlib import Path

import click

# What is made by running, or must stay private, and so does not belong into a repository.
IGNORED = "stats.db*\nsecrets.yaml\n"


@click.command()
@click.option("--force", is_flag=True, help="Replace a config that is there.")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path), default=Path())
def init(folder: Path, force: bool) -> None:
    """Write .onetool/onetool.yaml into FOLDER (this one by default)."""
    from onetool.config.starter import starter_config

    file = folder / ".onetool" / "onetool.yaml"
    if file.exists() and not force:
        raise click.ClickException(f"{file} is there already; --force replaces it.")
    try:
        file.parent.mkdir(exist_ok=True)
        file.write_text(starter_config(), encoding="utf-8")
        ignore = file.with_name(".gitignore")
        if not ignore.exists():
            ignore.write_text(IGNORED, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"can't write {file}: {error.strerror}.") from None
    there = "" if folder == Path() else f"cd {folder}, "
    click.echo(f"Wrote {file}. Next: {there}onetool check, onetool tools list, onetool tools invoke weather.")
