"""Who speaks after whom. Many servers, and the templates of many models, refuse a person that speaks twice in a row.

That is what a session has where nothing came of a question; and a reply that is blank makes it so, too.
"""

from collections.abc import Iterable, Iterator

from onetool.ask.messages import Assistant, Message, User
from onetool.ask.providers.reading import with_files


def in_turns(messages: Iterable[Message]) -> Iterator[Message]:
    """The messages without blank replies; what a person said several times in a row is one."""
    asked: User | None = None
    for message in messages:
        if isinstance(message, User):
            asked = message if asked is None else _both(asked, message)
        elif not is_blank(message):
            if asked is not None:
                yield asked
                asked = None
            yield message
    if asked is not None:
        yield asked


def is_blank(message: Message) -> bool:
    """A reply that says nothing, and does nothing; whatever was thought before it."""
    return isinstance(message, Assistant) and not message.calls and not message.text.strip()


def _both(first: User, second: User) -> User:
    texts = filter(None, (with_files(first), with_files(second)))
    pictures = (file for file in (*first.files, *second.files) if file.data is not None)
    return User(text="\n\n".join(texts), files=tuple(pictures))
