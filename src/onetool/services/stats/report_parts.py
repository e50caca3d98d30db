"""The small parts that sections of the report are made of: a card, and a legend."""


def card(title: str, content: str, kind: str = "") -> str:
    return f'<section class="card{kind and " "}{kind}"><h2>{title}</h2>{content}</section>\n'


def legend(*entries: tuple[str, str]) -> str:
    """Which colour and pattern is what: the class that draws it, and what it means."""
    return _legend(
        '<svg aria-hidden="true" width="14" height="12"><rect class="{}" width="14" height="12" rx="2"/></svg>', entries
    )


def line_legend(*entries: tuple[str, str]) -> str:
    return _legend('<svg aria-hidden="true" width="26" height="12"><path class="line {}" d="M0 6H26"/></svg>', entries)


def _legend(drawn: str, entries: tuple[tuple[str, str], ...]) -> str:
    return f'<ul class="legend">{"".join(f"<li>{drawn.format(name)}{words}" for name, words in entries)}</ul>'
