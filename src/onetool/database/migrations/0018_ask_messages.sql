-- Sessions of `ask`: a row for each, and one for each of its records. `owner` is a hash; empty: the local user. `title`
-- was given by the user. Nobody holds a session: the second writer of a number is refused.
ALTER TABLE ask_sessions RENAME TO ask_sessions_before;
CREATE TABLE ask_sessions (
    owner text NOT NULL,
    id text NOT NULL,
    modified double precision NOT NULL,
    title text,
    PRIMARY KEY (owner, id)
);
CREATE TABLE ask_messages (
    owner text NOT NULL,
    id text NOT NULL,
    number bigint NOT NULL,
    kind text NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (owner, id, number),
    FOREIGN KEY (owner, id) REFERENCES ask_sessions (owner, id) ON DELETE CASCADE
);
INSERT INTO ask_sessions (owner, id, modified)
SELECT owner, id, modified FROM ask_sessions_before WHERE size > 0;
INSERT INTO ask_messages (owner, id, number, kind, body)
SELECT owner, id, number, CASE {start_of_body}
    WHEN '{"type":"user"' THEN 'user'
    WHEN '{"type":"ended' THEN 'ended'
    WHEN '{"type":"title' THEN 'titled'
    ELSE '' END, body
FROM ask_records WHERE (owner, id) IN (SELECT owner, id FROM ask_sessions);
DROP TABLE ask_records;
DROP TABLE ask_sessions_before;
CREATE INDEX ask_sessions_used ON ask_sessions (owner, modified, id);
CREATE INDEX ask_messages_of_kind ON ask_messages (owner, id, kind, number);
