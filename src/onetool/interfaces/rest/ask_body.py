"""The body of `POST /ask` and its error responses.

Clients can't choose the model's address, because our API key must not be sent elsewhere.
"""

import re
from collections.abc import Callable, Mapping
from math import ceil
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from onetool.ask.errors import AskError, SessionError
from onetool.ask.events import Answer
from onetool.ask.messages import File
from onetool.ask.sessions.records import LAST, SESSION_ID, check_id
from onetool.core.model_providers import ProviderName
from onetool.core.principal import is_pattern
from onetool.http.asgi import HttpError, encode
from onetool.interfaces.rest.problem import RETRY_S, Problem, RestError, problem_body
from onetool.sources.bundles.errors import InvalidError, invalid_at
from onetool.sources.bundles.validation import converted

MAX_STEPS = 1000
MAX_NAMES = 1000  # in an allow-list
MAX_PATTERNS = 50  # among these names …
MAX_STARS = 4  # … and in each pattern
MAX_FILE_BYTES = 5 * 1024**2  # all files of a question together
PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")

Value = TypeVar("Value", str, bool)
Word = Annotated[str, Meta(min_length=1, max_length=200)]
Name = Annotated[str, Meta(max_length=200)]  # unknown tools are reported in a hint
Names = Annotated[tuple[Name, ...], Meta(max_length=MAX_NAMES, description="Allow only these tools; []: none.")]
Prompt = Annotated[str, Meta(min_length=1, extra_json_schema={"pattern": r"[^\s\x1c-\x1f\x85]"})]  # not blank
SessionId = Annotated[str, Meta(extra_json_schema={"pattern": f"^{SESSION_ID.pattern}$"})]
Steps = Annotated[int, Meta(ge=1, le=MAX_STEPS, description="Maximum number of requests to the model.")]
Menu = Annotated[Literal["direct", "run"], Meta(description="`run`: the model sees one tool, which runs code.")]
Approval = Annotated[
    Literal["ask", "always", "never"], Meta(description="For tools that change something; `ask` needs a stream.")
]


class QuestionFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An attached file: text, or an image in base64."""

    name: Annotated[Word, Meta(description="The file's name as the model sees it.")]
    kind: Annotated[Word | None, Meta(description="The media type.")] = None
    text: str | UnsetType = UNSET
    data: str | UnsetType = UNSET


class AskQuestion(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A question and its options. Defaults come from the server's config."""

    prompt: Prompt
    session: Annotated[SessionId | None, Meta(description="A session id, or `last`; null: a new session.")] = None
    new_session: Annotated[bool, Meta(description="Refuse the question if the session already exists.")] = False
    with_tools: Annotated[bool | UnsetType, Meta(description="false: the model gets no tools.")] = UNSET
    tool_allow: Names | None = None
    provider: ProviderName | None = None
    model: Annotated[Word | None, Meta(description="The provider's name of the model.")] = None
    system: Annotated[str | None, Meta(description="Replaces the server's system prompt.")] = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    max_steps: Steps | None = None
    menu: Menu | None = None
    approve: Approval = "never"
    files: Annotated[tuple[QuestionFile, ...], Meta(description="Files attached to the question.")] = ()

    def options(self) -> dict[str, Any]:
        """Return the options of `app.ask`, without prompt and allow-list."""
        names = ("session", "new_session", "provider", "model", "system", "temperature", "max_steps", "menu", "approve")
        options = {name: getattr(self, name) for name in names}
        files = [
            File(name=one.name, kind=one.kind or "text/plain", text=_or_none(one.text), data=_or_none(one.data))
            for one in self.files
        ]
        return options | {"with_tools": _or_none(self.with_tools), "files": tuple(files)}


def read_question(body: Any) -> AskQuestion:
    """Read and check the body of POST /ask. Raises InvalidError."""
    try:
        question = converted(body, AskQuestion)
        if not question.prompt.strip():
            raise invalid_at("/prompt", "must not be blank: send a question")
        if question.session is not None and (question.session != LAST or question.new_session):
            try:
                check_id(question.session)
            except SessionError as error:
                raise invalid_at("/session", str(error)) from None
        patterns = [name for name in question.tool_allow or () if is_pattern(name)]
        if len(patterns) > MAX_PATTERNS or any(one.count("*") > MAX_STARS for one in patterns):  # for all tools
            what = f"must have at most {MAX_PATTERNS} patterns, each with at most {MAX_STARS} stars"
            raise invalid_at("/toolAllow", what)
        for pointer, one in enumerate(question.files):
            _check_file(one, f"/files/{pointer}")
        if sum(map(_size, question.files)) > MAX_FILE_BYTES:
            most = f"{MAX_FILE_BYTES // 1024**2} MiB"
            raise invalid_at("/files", f"all together have at most {most}; a tool can read larger ones")
    except InvalidError as error:
        if error.pointer == "" and isinstance(body, Mapping) and "prompt" not in body:
            raise invalid_at("/prompt", "it is missing: send a question") from None
        raise
    return question


def _check_file(file: QuestionFile, pointer: str) -> None:
    if (file.text is UNSET) == (file.data is UNSET):
        both = "neither is given" if file.text is UNSET else "both are given"
        raise invalid_at(pointer, f"expected either `text`, or an image in base64 in `data`; {both}")
    if file.data is UNSET:
        return
    if file.kind not in PICTURES:
        fault = "it is missing" if file.kind is None else f"{file.kind!r} can't be sent as `data`"
        raise invalid_at(f"{pointer}/kind", f"{fault}; use one of {', '.join(PICTURES)}")
    if len(file.data) % 4 or not _BASE64.fullmatch(file.data):
        raise invalid_at(f"{pointer}/data", "expected base64 on one line, with padding")


def _size(file: QuestionFile) -> int:
    return len(file.data) * 3 // 4 if file.data is not UNSET else len((_or_none(file.text) or "").encode())


def _or_none(value: Value | UnsetType) -> Value | None:
    return None if value is UNSET else value


# Command line options in messages become keys of the body

_KEYS = {
    one.replace("_", "-"): key
    for one, key in zip(AskQuestion.__struct_fields__, AskQuestion.__struct_encode_fields__, strict=True)
}
_CLI_OPTION = re.compile(rf"--({'|'.join(sorted(_KEYS, key=len, reverse=True))})(?![\w-])")


def in_client_words(text: str) -> str:
    """Replace command line options with keys of the body: `--tool-allow` with `toolAllow`."""
    return _CLI_OPTION.sub(lambda match: _KEYS[match[1]], text)


# Problems

STATUS_OF_REASON: dict[str, int] = {
    "busy": 409,
    "exists": 409,
    "not_found": 404,
    "database_away": 503,
    "change_unknown": 503,
    "not_stored": 503,
    "session": 503,  # can't be written, or was written by a later OneTool. Ids were checked before
    "no_key": 503,  # the operator has to set something up
    "no_provider": 503,
    "no_model": 503,
    "overloaded": 503,
    "rate_limited": 429,
    "timeout": 504,
    "too_long": 413,
    "refused": 422,
}
OF_DATABASE = ("database_away", "change_unknown")
PROVIDER_STATUS = 502  # all other reasons: the provider failed or could not be reached
ABOUT_SESSIONS = ("busy", "exists", "not_found")


class AskProblem(Problem, frozen=True, kw_only=True, omit_defaults=True):
    """A problem with hints, and the partial answer."""

    answer: Annotated[Answer | None, Meta(description="The partial answer: tools may have run.")] = None


class AskFailedError(RestError):
    """Raised when a question could not be answered."""

    def __init__(self, error: AskError, answer: Answer, question: AskQuestion) -> None:
        wait: float | None = RETRY_S if error.reason in OF_DATABASE else getattr(error, "wait", None)
        status, pointer = STATUS_OF_REASON.get(error.reason, PROVIDER_STATUS), None
        if error.reason == "model_not_found" and question.model is not None:  # the client named the model
            status, pointer = 400, "/model"
        elif error.reason in ABOUT_SESSIONS and question.session is not None:
            pointer = "/session"
        super().__init__(
            status,
            error.reason,
            in_client_words(str(error)),
            part="body" if pointer else None,
            pointer=pointer,
            headers=[(b"retry-after", b"%d" % max(1, ceil(wait)))] if wait is not None and status in (429, 503) else (),
        )
        self.hints = tuple(map(in_client_words, error.hints))
        self.needs = error.needs
        self.answer = answer if answer.provider else None  # without a provider nothing was done

    def event(self, clean: Callable[[Any], Any]) -> bytes:
        data = {"reason": self.code, "message": str(self), "hints": list(self.hints)}
        data |= {"needs": msgspec.to_builtins(self.needs)} if self.needs else {}
        return encode({"type": "error", **clean(data), "answer": _answer_data(self.answer, clean)})


def ask_problem_body(refused: HttpError, clean: Callable[[Any], Any]) -> bytes:
    if not isinstance(refused, AskFailedError):
        return problem_body(refused, clean)
    further: dict[str, Any] = {"hints": clean(list(refused.hints))} if refused.hints else {}
    if refused.answer is not None:
        further["answer"] = _answer_data(refused.answer, clean)
    return encode({**msgspec.json.decode(problem_body(refused, clean)), **further})


def _answer_data(answer: Answer | None, clean: Callable[[Any], Any]) -> Any:
    """Convert the answer to data. Masks secrets in its error, because a provider's message may contain them."""
    return None if answer is None else {**msgspec.to_builtins(answer), "error": clean(answer.error)}
