"""What commands say about a folder that is not trusted, and the question that they put at a terminal."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from onetool.core import lookalike

if TYPE_CHECKING:
    from onetool.config.reach import Reach
    from onetool.config.trust import Untrusted

HEADS = {
    "runs": "It would run",
    "dials": "It would dial",
    "reads": "It would read",
    "secrets": "It names these secrets",
}


def offer_trust(waits: "Untrusted") -> bool:
    """Tell of it; at a terminal ask whether it is trusted. Whether it is now: what was shown, if it was."""
    from onetool.config.reach import reach_of

    click.echo(f"onetool: {visible(waits)}", err=True)
    if waits.mistake is not None or not is_anybody_there():
        return False
    shown = None
    while True:
        answer = (
            click.prompt("Trust this folder? [y/N/v]iew", default="n", show_default=False, err=True).strip().lower()
        )
        if answer in ("v", "view"):
            shown = _shown(waits)
        elif answer in ("y", "yes"):
            remember(waits.folder, shown or reach_of(waits.folder, waits.config))
            return True
        else:
            return False


def is_anybody_there() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def remember(folder: Path, reach: "Reach") -> None:
    from onetool.config.find import trust_store
    from onetool.config.trust import trust_folder

    try:
        trust_folder(folder, reach, trust_store())
    except OSError as error:
        raise click.ClickException(visible(f"it could not be remembered: {error}")) from None


@contextmanager
def renewed(file: Path, names: tuple[str, ...] = ()) -> Iterator[None]:
    """Around what a person changes: see `onetool.config.trust.renewing`."""
    from onetool.config.find import own_folder, trust_store
    from onetool.config.trust import renewing

    with renewing(file.absolute(), trust_store(), own_folder(), names):
        yield


def described(reach: "Reach", pin: Mapping[str, Any] | None) -> Iterator[str]:
    """What a folder reaches, line by line; with what was trusted before, what is new is marked."""
    before = None if pin is None else pin.get("reaches") or {}
    for part, head in HEADS.items():
        lines: dict[str, str] = getattr(reach, part)
        if lines:
            yield f"{head}:"
            for line, digest in lines.items():
                yield f"  {_mark(before, f'{part}: {line}', digest)}{_line(line)}"
    if reach.wants:
        yield f"Its packs ask for these secrets: {visible(', '.join(reach.wants))}"
    if gone := [] if before is None else [line for line in before if line not in reach.pinned()]:
        yield "No longer there:"
        yield from (f"  - {visible(line)}" for line in gone)
    if not reach.pinned():
        yield "It runs, dials and reads nothing outside of itself."


def _mark(before: Mapping[str, str] | None, line: str, digest: str) -> str:
    if before is None or before.get(line) == digest:
        return ""
    return "(changed) " if line in before else "(new) "


def visible(text: object) -> str:
    """In one line, with everything written out that can't be seen, or that would rule a terminal."""
    return lookalike.visible(str(text)).replace("\n", "\\n")


def _line(text: str) -> str:
    """A line of what is reached; behind it, what looks like something else, and hosts as they are dialled."""
    odd = [f"mind the letters: {word}" for word in dict.fromkeys(lookalike.disguised(text))]
    odd += [f"that is {host}" for host in dict.fromkeys(lookalike.hosts_in_ascii(text))]
    return visible(f"{text} ({'; '.join(odd)})" if odd else text)


def _shown(waits: "Untrusted") -> "Reach":
    from onetool.config.find import trust_store
    from onetool.config.reach import reach_of

    reach = reach_of(waits.folder, waits.config)
    for line in described(reach, trust_store().folder(waits.folder)):
        click.echo(line, err=True)
    return reach
