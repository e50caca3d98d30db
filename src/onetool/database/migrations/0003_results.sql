-- Results that were too large to send. The key is a hash of handle and owner, the owner a hash, too; empty: unknown.
-- Of one that has ended its row stays for a day, without its pieces.
CREATE TABLE results (
    key text PRIMARY KEY,
    owner text NOT NULL,
    note bytea NOT NULL,
    size bigint NOT NULL,
    lines bigint NOT NULL,
    at double precision NOT NULL,
    ended_at double precision,
    removed boolean NOT NULL
);
CREATE INDEX results_of_owner ON results (owner, at) WHERE ended_at IS NULL;
CREATE INDEX results_kept ON results (at, key, size) WHERE ended_at IS NULL;
CREATE INDEX results_ended ON results (ended_at) WHERE ended_at IS NOT NULL;
-- Their texts in UTF-8, in pieces that are read one by one: a page does not need all of it.
CREATE TABLE result_pieces (
    key text NOT NULL REFERENCES results (key) ON DELETE CASCADE,
    number bigint NOT NULL,
    first_line bigint NOT NULL,
    first_column bigint NOT NULL,
    text bytea NOT NULL,
    PRIMARY KEY (key, number)
);
