"""What a client may send to `POST /ask`. Not among it: where the model is. Our key must go nowhere else."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from onetool.ask.errors import SessionError
from onetool.ask.messages import File
from onetool.ask.sessions.names import LAST, check_id
from onetool.interfaces.rest.problem import Wrong, from_store
from onetool.sources.bundles.errors import Invalid
from onetool.sources.bundles.reading import converted

MOST_STEPS = 1000
MOST_NAMES = 1000  # in an allow-list
PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")

Given = TypeVar("Given", str, bool)
Word = Annotated[str, Meta(min_length=1, max_length=200)]
Name = Annotated[str, Meta(max_length=200)]  # of a tool, or of what is none: that is told in a hint


class QuestionFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A text, or a picture as base64."""

    name: Word
    kind: Word | None = None
    text: str | UnsetType = UNSET
    data: str | UnsetType = UNSET


class Question(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What is asked, and how it is to be answered. What is not said is as the server's config has it."""

    prompt: Annotated[str, Meta(min_length=1)]
    session: str | None = None
    new_session: bool = False
    with_tools: bool | UnsetType = UNSET
    tool_allow: Annotated[tuple[Name, ...], Meta(max_length=MOST_NAMES)] | None = None
    provider: Literal["openai", "ollama", "gemini", "anthropic"] | None = None
    model: Word | None = None
    system: str | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    max_steps: Annotated[int, Meta(ge=1, le=MOST_STEPS)] | None = None
    menu: Literal["direct", "run"] | None = None
    approve: Literal["always", "never"] = "never"  # nobody is there who could be asked
    files: tuple[QuestionFile, ...] = ()

    def options(self) -> dict[str, Any]:
        """All but the prompt and the allow-list, as `app.ask` takes it."""
        names = ("session", "new_session", "provider", "model", "system", "temperature", "max_steps", "menu", "approve")
        given = {name: getattr(self, name) for name in names}
        return given | {"with_tools": _or_none(self.with_tools), "files": tuple(map(_file, self.files))}


def read_question(body: Any) -> Question:
    """Wrong says what can't be used, and where."""
    try:
        question = converted(body, Question)
        if not question.prompt.strip():
            raise Invalid("/prompt: there is nothing in it: send a question", "/prompt")
        _check_session(question)
        for place, one in enumerate(question.files):
            _check(one, f"/files/{place}")
    except Invalid as error:
        raise _wrong(error, body) from None
    return question


def _wrong(error: Invalid, body: Any) -> Wrong:
    if error.pointer == "" and isinstance(body, Mapping) and "prompt" not in body:
        return from_store(Invalid("/prompt: is missing: send a question", "/prompt"))
    return from_store(error)


def _check_session(question: Question) -> None:
    if question.session is not None and (question.session != LAST or question.new_session):
        try:
            check_id(question.session)
        except SessionError as error:
            raise Invalid(f"/session: {error}", "/session") from None


def _check(file: QuestionFile, place: str) -> None:
    if (file.text is UNSET) == (file.data is UNSET):
        both = "neither is there" if file.text is UNSET else "both are there"
        raise Invalid(f"{place}: needs `text`, or a picture as base64 in `data`, but {both}", place)
    if file.data is UNSET:
        return
    if file.kind not in PICTURES:
        said = "is missing" if file.kind is None else f"{file.kind!r} is none that can be sent as `data`"
        raise Invalid(f"{place}/kind: {said}; there are {', '.join(PICTURES)}", f"{place}/kind")
    if len(file.data) % 4 or not _BASE64.fullmatch(file.data):
        raise Invalid(f"{place}/data: expected base64, in one line and with its padding", f"{place}/data")


def _file(file: QuestionFile) -> File:
    return File(name=file.name, kind=file.kind or "text/plain", text=_or_none(file.text), data=_or_none(file.data))


def _or_none(given: Given | UnsetType) -> Given | None:
    return None if given is UNSET else given
