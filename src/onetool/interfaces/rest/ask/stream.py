"""An answer as a stream of events, for who asks with `Accept: text/event-stream`.

Each event of ask/events.py has its tag for a name, and its JSON as data. The last one is `answer`, or `error` with
{reason, message, hints, answer}. What is refused before anything is sent to the model has the status that it would
have without a stream.
"""

import asyncio
from contextlib import aclosing

import msgspec

from onetool.ask.errors import AskError
from onetool.ask.events import Done, Event, Started
from onetool.interfaces.asgi import Receive, Send
from onetool.interfaces.encoding import encode
from onetool.interfaces.leaving import Watch
from onetool.interfaces.rest.ask.paced import Paced
from onetool.interfaces.rest.ask.turn import Turn
from onetool.interfaces.rest.events import event


async def stream(turn: Turn, receive: Receive, send: Send) -> None:
    """Failed, where it has not become a stream by then."""
    outlet, watch = Paced(send), Watch(receive)
    outlet.begin_when_quiet()
    try:
        await _tell(turn, outlet)
    except AskError as error:
        failed = turn.failed(error)
        if not outlet.is_stream:
            await outlet.end()  # so that it does not become one
            raise failed from None
        await outlet.tell(event("error", failed.event(turn.clean)))
    except asyncio.CancelledError:
        outlet.drop()
        if not watch.forgive():
            raise
        return
    except BaseException:
        outlet.drop()
        raise
    finally:
        watch.end()
    await outlet.end()


async def _tell(turn: Turn, outlet: Paced) -> None:
    async with aclosing(turn.asking.events()) as events:  # nothing goes on where we are cancelled in between
        async for one in events:
            if isinstance(one, Started):
                outlet.open_with(_event(one))
            elif isinstance(one, Done):
                await outlet.tell(_event(Done(answer=turn.finished(one.answer))))
            else:
                await outlet.tell(_event(one))


def _event(one: Event) -> bytes:
    data = msgspec.to_builtins(one)
    return event(data["type"], encode(data))
