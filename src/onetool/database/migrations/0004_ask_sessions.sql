-- Sessions of `ask`. The owner is a hash; empty: who has no name. `holder` has a turn until the lease ends.
-- `first`, `ended`, `titled` and `questions` are what a list tells: the first record, the last turn that came to its end,
-- a title that was given since, and the questions since. A row without bytes is no session: a turn may begin one.
CREATE TABLE ask_sessions (
    owner text NOT NULL,
    id text NOT NULL,
    modified double precision NOT NULL,
    size bigint NOT NULL,
    lines bigint NOT NULL,
    first bytea NOT NULL,
    ended bytea NOT NULL,
    titled bytea NOT NULL,
    questions bigint NOT NULL,
    holder text,
    until double precision,
    PRIMARY KEY (owner, id)
);
CREATE INDEX ask_sessions_used ON ask_sessions (owner, modified, id);
-- What was said: each record is a line of JSON with its end.
CREATE TABLE ask_records (
    owner text NOT NULL,
    id text NOT NULL,
    number bigint NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (owner, id, number),
    FOREIGN KEY (owner, id) REFERENCES ask_sessions (owner, id) ON DELETE CASCADE
);
