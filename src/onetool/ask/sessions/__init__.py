"""Sessions of `ask`: what was said, in the database.

    store       SessionStore: take a turn in a session; list, read, rename and delete sessions
    turn        ChatSession: a session during one turn
    rows        the rows of sessions, and the thread of a turn that writes them
    records     the records of a session, how they are read and repaired, and what is told of them
    markdown    a session as a document

A session is a row, and each of its records is another one: a line of JSON. A turn writes this, for example:

    {"type":"session","version":1,"id":"20261115-191200-k3f9","created":1794770720.1,"title":"What time is it?"}
    {"type":"user","text":"What time is it?","at":1794770720.1}
    {"type":"assistant","calls":[{"id":"c1","name":"time.now"}],"at":1794770721.5}
    {"type":"result","call":"c1","name":"time.now","content":"…","at":1794770721.6}
    {"type":"assistant","text":"It is ten past seven.","at":1794770722.9}
    {"type":"ended","at":1794770722.9,"provider":"openai","model":"…","usage":{…},"steps":2,"turns":1,"total":{…}}

The types of lines, and their members:

    session     version, id, created, title: the first line
    user        text, files (name, kind, text or data)
    assistant   text, calls (id, name, args, malformed, kept), provider, kept, broken_off
    result      call, name, content, ok, value
    called      name, args, content, ok: a tool that the person called
    titled      title: that somebody has given the session
    ended       at, provider, model, usage, steps; turns, total and title (if one was given) are of the whole session,
                for the list of sessions

A message has the time as `at` beside its own members. Members with their default value are left out. Unknown types are
skipped: a later version may have more of them.

Sessions only grow: a record is never changed. `ended` follows each turn that came to its end. A session without records
doesn't exist. Ids that look generated must exist already, so that a mistyped one is noticed.
"""

from onetool.ask.sessions.records import SessionInfo, Transcript, check_id
from onetool.ask.sessions.store import SessionStore
from onetool.ask.sessions.turn import ChatSession, call_key

__all__ = ["ChatSession", "SessionInfo", "SessionStore", "Transcript", "call_key", "check_id"]
