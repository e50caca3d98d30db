"""Sessions of `ask`: conversations, stored in the database.

    store       SessionStore: starts turns; lists, reads, renames and deletes sessions
    turn        ChatSession: a session during one turn
    records     the records of a session: reading, repairing and summarising
    markdown    a session as a Markdown document

A session is a row, and each of its records, which is JSON, is another row. For example, a turn writes:

    {"type":"session","id":"20261115-191200-k3f9","created":1794770720.1,"title":"What time is it?"}
    {"type":"user","text":"What time is it?","at":1794770720.1}
    {"type":"assistant","calls":[{"id":"c1","name":"time.now"}],"at":1794770721.5}
    {"type":"result","call":"c1","name":"time.now","content":"…","at":1794770721.6}
    {"type":"assistant","text":"It is ten past seven.","at":1794770722.9}
    {"type":"ended","at":1794770722.9,"provider":"openai","model":"…","usage":{…},"steps":2,"total":{…}}

The types of records, and their members:

    session     id, created, title: the first record
    user        text, files (name, kind, text or data)
    assistant   text, calls (id, name, args, malformed, kept), provider, kept, broken_off
    result      call, name, content, ok, value
    called      name, args, content, ok: a tool call by the user
    allowed     tools: allowed from here on
    ended       at, provider, model, usage, steps, how, why; total is of the whole session, for the list of sessions

Messages also have a time, `at`. Members with their default value are omitted. Unknown types, which later versions may
have, are skipped.

Records are only added, never changed. `ended` follows each completed turn. A session without records doesn't exist. An
id that looks generated must exist already, so that typos are noticed.
"""

from onetool.ask.sessions.records import SessionInfo, Transcript, check_id
from onetool.ask.sessions.store import SessionStore
from onetool.ask.sessions.turn import ChatSession, call_key

__all__ = ["ChatSession", "SessionInfo", "SessionStore", "Transcript", "call_key", "check_id"]
