"""What was said, kept in files: one a session, that only grow.

    store       Sessions: a turn in one of them, all of them listed, one read or deleted
    session     Session: what was said before, and where what is said now is written down
    names       ids
    aside       reading and making safe, in a thread: others go on meanwhile
    files       opening, locking and writing a session's file: one turn at a time, among all processes
    records     the lines of a file
    reading     a file's bytes -> what was said, whatever happened to the file
    mending     calls without results, results without calls
    times       when something was said
    listing     what a list shows of a session, without reading all of it
    markdown    a session as a document

A file has one JSON object a line: a `session` first, then messages, and an `ended` after each turn that came to its
end. Nothing in it is ever changed. A line that was cut off (a crash, a full disk) stays where it is, and is passed
over.
"""

from onetool.ask.sessions.listing import Info
from onetool.ask.sessions.names import check_id
from onetool.ask.sessions.session import Session, same
from onetool.ask.sessions.store import Sessions, Transcript

__all__ = ["Info", "Session", "Sessions", "Transcript", "check_id", "same"]
