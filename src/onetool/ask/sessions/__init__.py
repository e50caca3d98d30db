"""Sessions of `ask`: what was said, kept in files or in a database.

    base        AskSessions: a turn in a session; list, read and delete sessions. ChatSession: the messages so far, and
                where new ones are written
    store       SessionStore: sessions in a folder; one turn at a time among all processes
    database    DatabaseSessions: sessions in PostgreSQL, and the lease that lets one turn alone write
    records     the lines of a session, reading them, whatever happened to the file, and what is told of them
    markdown    a session as a document

A session is one file with one JSON object per line; in a database each line is a row. A turn writes this, for example:

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

Files only grow: a line is never changed. A line that was cut off (by a crash, or a full disk) stays where it is and is
skipped. `ended` follows each turn that came to its end.
A file without content is no session. Ids that look generated must exist already, so that a mistyped one is noticed.

A turn holds a lock on its file until it ends; other turns wait for it, also in other processes. Lists and transcripts
are read without the lock, so they also show a turn that is under way.
"""

from onetool.ask.sessions.base import AskSessions, ChatSession, call_key
from onetool.ask.sessions.records import SessionInfo, Transcript, check_id
from onetool.ask.sessions.store import SessionStore

__all__ = ["AskSessions", "ChatSession", "SessionInfo", "SessionStore", "Transcript", "call_key", "check_id"]
