"""Writes a session as a Markdown document.

Questions and answers are quoted line by line, and arguments and results are in fences longer than any inside, so
content can't break out. HTML is escaped, and pictures become links: opening the document in a viewer sends no requests.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from onetool.ask.messages import Assistant, Call, Result, SessionMessage, User, UserCall, backticks, fenced, unmark
from onetool.ask.sessions.records import NO_ANSWER, UNDER_WAY, Transcript

# The first second of the year 9999, the last year of `datetime`: its end is in the year 10000 in some time zones.
LATEST_TIME = 253_370_764_800


def utc_time(seconds: float) -> datetime | None:
    """Return a time in UTC; None if it is out of range."""
    return datetime.fromtimestamp(seconds, UTC) if 0 <= seconds < LATEST_TIME else None  # None for NaN, too


# The document

LINE_END = re.compile(r"\r\n?")
# Control characters are shown as symbols.
SHOWN = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"} | {127: 0x2421}
SHOWN |= dict.fromkeys(range(0x80, 0xA0), 0xFFFD)
# Invisible characters can reverse the writing direction, end a line, or hide text. Joiners of letters and emoji, and
# soft hyphens, are kept: many languages use them.
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
        lines.append(f"- Unreadable lines, not shown here: {transcript.damaged:,}")
    return "\n".join(lines)


def _message_lines(message: SessionMessage, at: float, number: int, calls: dict[str, Call]) -> list[str]:
    match message:
        case User():
            parts = [f"## Question {number:,} · {_time(at)}", *_quoted(message.text)]
            return parts + [f"Attached: {_code(file.name)} ({_code(file.kind)})" for file in message.files]
        case Assistant():
            if not message.text and not message.broken_off:
                return []
            title = "Before tool calls" if message.calls else "Answer"
            broken_off = ["The answer was cut off."] if message.broken_off else []
            return [f"### {title} · {_time(at)}", *_quoted(message.text), *broken_off]
        case Result():
            parts = [f"### Tool {_code(message.name)} · {_time(at)} · {_how(message)}"]
            if (call := calls.get(message.call)) is not None and call.malformed is not None:
                parts.append(fenced(_plain(call.malformed)))
            elif call is not None:
                parts.append(fenced(_plain(_json(call.args)), "json"))
            return [*parts, fenced(_plain(unmark(message.content)[0]))]
        case UserCall():
            return [
                f"## You called {_code(message.name)} · {_time(at)} · {_how(message)}",
                fenced(_plain(_json(message.args)), "json"),
                fenced(_plain(unmark(message.content)[0])),
            ]


def _how(result: Result | UserCall) -> str:
    if result.ok:
        return "ok"
    return "running" if result.content == UNDER_WAY else "failed"


def _json(args: Mapping[str, Any]) -> str:
    return msgspec.json.format(msgspec.json.encode(args), indent=2).decode()


def _quoted(text: str) -> list[str]:
    lines = _without_pictures(_plain(text).split("\n"))
    return ["\n".join(f"> {line}".rstrip() for line in lines)] if text.strip() else []


FENCE = re.compile(r"(`{3,})[^`]*|(~{3,}).*")
MAYBE_FENCE = re.compile(r".*(?:```|~~~)")
TAG = re.compile(r"<(?=[A-Za-z/!?])")


def _without_pictures(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines, with tags escaped and pictures replaced by links. Code blocks are not changed.

    After a fence that is indented, nothing counts as code. Tags can't be escaped with a backslash, because the text may
    have another one before it.
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
    """Return a code span. Spaces separate its content from the backticks; viewers remove them."""
    text = " ".join(_plain(text).split()) or "?"
    mark = backticks(text)
    return f"{mark} {text} {mark}" if "`" in text else f"{mark}{text}{mark}"


def _plain(text: str) -> str:
    return LINE_END.sub("\n", text).translate(SHOWN)


def _time(at: float) -> str:
    when = utc_time(at)
    return f"{when:%Y-%m-%d %H:%M:%S} UTC" if when else "?"
