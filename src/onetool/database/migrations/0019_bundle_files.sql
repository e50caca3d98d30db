-- A bundle is its files here, too, as in a folder: one row for each, with its content as JSON; NULL: removed. A change
-- locks the row of bundle_store first, and each row that it touches gets the next revision.
CREATE TABLE bundle_files (
    path text PRIMARY KEY,
    body bytea,
    stamp bigint NOT NULL,
    revision bigint NOT NULL
);
CREATE INDEX bundle_files_by_revision ON bundle_files (revision);
-- The tables before this one, which are used no more.
INSERT INTO bundle_files (path, body, stamp, revision) SELECT id || '/bundle.json', body, 0, revision FROM bundles;
INSERT INTO bundle_files (path, body, stamp, revision)
    SELECT bundle || '/tools/' || slug || '@' || version || '.json', body, 0, revision FROM bundle_tools;
INSERT INTO bundle_files (path, body, stamp, revision) SELECT 'builtin.json', body, 0, revision FROM bundle_switches
