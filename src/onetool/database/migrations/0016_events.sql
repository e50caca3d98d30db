-- The journal: rows that are only added and forgotten. The audit log, the stats and their charts are views of it.
-- `kind` is call, run, reply, menu or wait for the stats; change, login, approval, refusal, admin or gap for the audit
-- log alone. The stats count the rows with a `tool`; the audit log has the rows with a `what`. Names sort by their
-- bytes. A menu has the size of a list of every tool in `bytes_in`, and the size of what was sent in `bytes_out`.
CREATE TABLE events (
    number {identity},
    at double precision NOT NULL,
    kind text{bytewise} NOT NULL,
    tool text{bytewise},
    what text{bytewise},
    source text{bytewise} NOT NULL DEFAULT '',
    via text{bytewise} NOT NULL DEFAULT '',
    client text{bytewise} NOT NULL DEFAULT '',
    who text{bytewise},
    owner text{bytewise} NOT NULL DEFAULT '',
    role text,
    address text,
    outcome text{bytewise} NOT NULL DEFAULT 'ok',
    reason text{bytewise},
    status integer,
    ms double precision,
    bytes_in bigint,
    bytes_out bigint,
    run text{bytewise},
    id text{bytewise},
    args text,
    hosts text,
    made text,
    request text,
    own text,
    trace text
);
CREATE INDEX events_by_time ON events (at, number);
CREATE INDEX events_of_tool ON events (tool, at) WHERE tool IS NOT NULL;
CREATE INDEX events_of_run ON events (run) WHERE run IS NOT NULL;
CREATE INDEX events_besides_calls ON events (kind, at) WHERE kind <> 'call';
