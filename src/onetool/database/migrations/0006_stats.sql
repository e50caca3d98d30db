-- What was called, and how it went: rows that are only added and forgotten. Names sort as in SQLite, by their bytes.
CREATE TABLE stats_calls (
    at double precision NOT NULL,
    tool text{bytewise} NOT NULL,
    source text{bytewise} NOT NULL,
    door text{bytewise} NOT NULL,
    client text{bytewise} NOT NULL,
    run text{bytewise},
    ok integer NOT NULL,
    code text{bytewise},
    reason text{bytewise},
    duration_ms double precision NOT NULL,
    bytes_in bigint NOT NULL,
    bytes_out bigint NOT NULL,
    caller text{bytewise} NOT NULL DEFAULT '',
    tokens_in integer GENERATED ALWAYS AS (CAST((bytes_in + 3) / 4 AS integer)) STORED,
    tokens_out integer GENERATED ALWAYS AS (CAST((bytes_out + 3) / 4 AS integer)) STORED
);
CREATE INDEX stats_calls_by_tool ON stats_calls (tool, at);
CREATE INDEX stats_calls_by_time ON stats_calls (at);
CREATE INDEX stats_calls_by_run ON stats_calls (run) WHERE run IS NOT NULL;
CREATE TABLE stats_runs (
    at double precision NOT NULL,
    id text{bytewise} NOT NULL,
    door text{bytewise} NOT NULL,
    client text{bytewise} NOT NULL,
    ok integer NOT NULL,
    code text{bytewise},
    duration_ms double precision NOT NULL,
    calls bigint NOT NULL,
    bytes_in bigint NOT NULL,
    caller text{bytewise} NOT NULL DEFAULT '',
    tokens_in integer GENERATED ALWAYS AS (CAST((bytes_in + 3) / 4 AS integer)) STORED
);
CREATE INDEX stats_runs_by_id ON stats_runs (id);
CREATE INDEX stats_runs_by_time ON stats_runs (at);
CREATE TABLE stats_replies (
    at double precision NOT NULL,
    run text{bytewise} NOT NULL,
    bytes_out bigint NOT NULL,
    tokens_out integer GENERATED ALWAYS AS (CAST((bytes_out + 3) / 4 AS integer)) STORED
);
CREATE INDEX stats_replies_by_time ON stats_replies (at);
CREATE INDEX stats_replies_by_run ON stats_replies (run);
CREATE TABLE stats_menus (
    at double precision NOT NULL,
    client text{bytewise} NOT NULL,
    door text{bytewise} NOT NULL,
    full_bytes bigint NOT NULL,
    sent_bytes bigint NOT NULL,
    caller text{bytewise} NOT NULL DEFAULT '',
    full_tokens integer GENERATED ALWAYS AS (CAST((full_bytes + 3) / 4 AS integer)) STORED,
    sent_tokens integer GENERATED ALWAYS AS (CAST((sent_bytes + 3) / 4 AS integer)) STORED
);
CREATE INDEX stats_menus_by_time ON stats_menus (at);
CREATE TABLE stats_gaps (
    at double precision NOT NULL,
    client text{bytewise} NOT NULL,
    duration_ms double precision NOT NULL,
    caller text{bytewise} NOT NULL DEFAULT ''
);
CREATE INDEX stats_gaps_by_time ON stats_gaps (at);
-- The last batch of each process: one whose commit nobody saw is sent again, and counts once.
CREATE TABLE stats_writers (
    id text PRIMARY KEY,
    batch bigint NOT NULL,
    at double precision NOT NULL
);
