-- Results that were too large to send: one row each, with its text compressed. Without a text, a row only tells for a
-- day that the result has expired; `ended_at` says when it was removed to make room. Those stored before are forgotten.
DROP TABLE result_pieces;
DROP TABLE results;
CREATE TABLE results (
    handle text PRIMARY KEY,
    owner text NOT NULL,
    name text,
    head text NOT NULL,
    size bigint NOT NULL,
    room bigint NOT NULL,
    lines bigint NOT NULL,
    is_json boolean NOT NULL,
    at double precision NOT NULL,
    ended_at double precision,
    text bytea,
    value bytea
);
CREATE INDEX results_of_owner ON results (owner, at, handle) WHERE text IS NOT NULL;
CREATE INDEX results_kept ON results (at, handle, owner, room) WHERE text IS NOT NULL;
