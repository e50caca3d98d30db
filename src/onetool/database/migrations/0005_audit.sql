-- The audit log: a line of JSON each, numbered as they came. `at` is what the line says, `written_at` the time of
-- the database. Lines that are imported have numbers below all others.
CREATE TABLE audit (
    number {identity},
    at double precision NOT NULL,
    written_at double precision NOT NULL,
    line text NOT NULL
);
CREATE INDEX audit_by_time ON audit (at, number);
CREATE INDEX audit_by_age ON audit (written_at);
-- The key of the hashes, which all replicas share.
CREATE TABLE audit_key (
    is_only boolean PRIMARY KEY CHECK (is_only),
    key bytea NOT NULL
);
INSERT INTO audit_key (is_only, key) VALUES (
    true,
    {random_key}
);
