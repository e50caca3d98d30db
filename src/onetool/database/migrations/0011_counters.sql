-- Numbers that only grow. `documents`: the last version of any document. `damaged`: this file replaces a damaged one.
CREATE TABLE counters (
    name text PRIMARY KEY,
    value bigint NOT NULL
);
INSERT INTO counters (name, value) SELECT 'documents', coalesce(max(version), 0) FROM documents;
