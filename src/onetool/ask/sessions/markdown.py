"""Writes a session as a Markdown document.

Questions and answers are quoted line by line, and arguments and results stand in fences longer than any inside. So no
content can break out of its place. Nothing in them is HTML, and pictures are links: who opens the document in a viewer
sends nothing to anybody by that.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from onetool.ask.messages import Assistant, Call, Result, SessionMessage, User, UserCall, backticks, fenced, unmark
from onetool.ask.sessions.records import NO_ANSWER, UNDER_WAY, Transcript

# The first second of the year 9999, the last year that `datetime` has. A time at the end of that
# year would be in the year 10000 in some time zones.
LATEST_TIME = 253_370_764_800


def utc_time(seconds: float) -> datetime | None:
    """That moment, in UTC; None where it is none."""
    return datetime.fromtimestamp(seconds, UTC) if 0 <= seconds < LATEST_TIME else None  # so that NaN is none, too


# The document


LINE_END = re.compile(r"\r\n?")
# Signs that move a terminal's cursor, or worse, are shown as pictures of themselves.
SHOWN = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"} | {127: 0x2421}
SHOWN |= dict.fromkeys(range(0x80, 0xA0), 0xFFFD)
# And so are those that nobody sees: they turn what follows around, end a line, or hide a text in another. Joiners of
# letters and emoji, and soft hyphens, belong to texts of many languages.
UNSEEN = [(0x61C, 0x61C), (0x180E, 0x180E), (0x200B, 0x200B), (0x200E, 0x200F), (0x2028, 0x202E), (0x2060, 0x206F)]
UNSEEN += [(0xFEFF, 0xFEFF), (0xFFF9, 0xFFFB), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE007F)]
SHOWN |= {code: 0xFFFD for first, last in UNSEEN for code in range(first, last + 1)}


def markdown(transcript: Transcript) -> str:
    parts = [_head(transcript)]
    calls: dict[str, Call] = {}
    number = 0
    for place, (message, at) in enumerate(zip(transcript.messages, transcript.times, strict=True)):
        if isinstance(message, User):
            number += 1
        elif isinstance(message, Assistant):
            calls = {call.id: call for call in message.calls}
        parts += _message_lines(message, at, number, calls)
        if transcript.lacks_answer(place):
            parts.append(NO_ANSWER)
    return "\n\n".join(parts) + "\n"


def _head(transcript: Transcript) -> str:
    usage = transcript.usage
    lines = [f"# Session {transcript.id}", ""]
    if transcript.title:
        lines.append(f"- Name: {_code(transcript.title)}")
    lines.append(f"- From {_time(transcript.created)} to {_time(transcript.modified)}")
    lines.append(f"- Questions: {transcript.turns:,}")
    if transcript.model:
        lines.append(f"- Model: {_code(transcript.model)} ({_code(transcript.provider)})")
    if usage.input or usage.output:
        lines.append(f"- Tokens: {usage.input:,} in, {usage.output:,} out")
    if transcript.damaged:
        lines.append(f"- Lines of the file that can't be read, and are not here: {transcript.damaged:,}")
    return "\n".join(lines)


def _message_lines(message: SessionMessage, at: float, number: int, calls: dict[str, Call]) -> list[str]:
    match message:
        case User():
            parts = [f"## Question {number:,} · {_time(at)}", *_quoted(message.text)]
            return parts + [f"Attached: {_code(file.name)} ({_code(file.kind)})" for file in message.files]
        case Assistant():
            if not message.text and not message.broken_off:
                return []
            title = "Before it called tools" if message.calls else "Answer"
            broken_off = ["It was not let finish."] if message.broken_off else []
            return [f"### {title} · {_time(at)}", *_quoted(message.text), *broken_off]
        case Result():
            call = calls.get(message.call)
            return [
                f"### Tool {_code(message.name)} · {_time(at)} · {_how(message)}",
                *([fenced(_plain(_arguments(call)), "json" if call.malformed is None else "")] if call else []),
                fenced(_plain(unmark(message.content)[0])),
            ]
        case UserCall():
            return [
                f"## You called {_code(message.name)} · {_time(at)} · {_how(message)}",
                fenced(_plain(_json(message.args)), "json"),
                fenced(_plain(unmark(message.content)[0])),
            ]


def _how(result: Result | UserCall) -> str:
    if result.ok:
        return "ok"
    return "under way" if result.content == UNDER_WAY else "failed"


def _arguments(call: Call) -> str:
    if call.malformed is not None:
        return call.malformed
    return _json(call.args)


def _json(args: Mapping[str, Any]) -> str:
    return msgspec.json.format(msgspec.json.encode(args), indent=2).decode()


def _quoted(text: str) -> list[str]:
    lines = _without_pictures(_plain(text).split("\n"))
    return ["\n".join(f"> {line}".rstrip() for line in lines)] if text.strip() else []


FENCE = re.compile(r"(`{3,})[^`]*|(~{3,}).*")
MAYBE_FENCE = re.compile(r".*(?:```|~~~)")
TAG = re.compile(r"<(?=[A-Za-z/!?])")


def _without_pictures(lines: Iterable[str]) -> Iterator[str]:
    """The lines with tags as text, and without the mark that makes a picture of a link. Blocks of code stay the same.

    What may begin or end a block of code elsewhere than at the margin is not followed: from there on nothing counts as
    code. A backslash would not do: the text may have one before its tag.
    """
    fence, is_clear = "", True
    for line in lines:
        if fence and is_clear:
            yield line
            end = line.strip()
            if line.startswith(fence) and end == fence[0] * len(end):
                fence = ""
            elif MAYBE_FENCE.match(line):
                is_clear = False
            continue
        yield TAG.sub("&lt;", line).replace("![", "! [")
        found = FENCE.fullmatch(line)
        if found is not None:
            fence = found[1] or found[2]
        elif MAYBE_FENCE.match(line):
            is_clear = False


def _code(text: str) -> str:
    """In a line. Spaces inside keep its own ticks apart from ours; readers take one of each off."""
    text = " ".join(_plain(text).split()) or "?"
    mark = backticks(text)
    return f"{mark} {text} {mark}" if "`" in text else f"{mark}{text}{mark}"


def _plain(text: str) -> str:
    return LINE_END.sub("\n", text).translate(SHOWN)


def _time(at: float) -> str:
    when = utc_time(at)
    return f"{when:%Y-%m-%d %H:%M:%S} UTC" if when else "?"
