-- Messages between processes: an answer to a question that another process has asked, and its outcome. Both are sealed.
CREATE TABLE messages (
    id text PRIMARY KEY,
    receiver text NOT NULL,
    sender text NOT NULL,
    body bytea NOT NULL,
    outcome bytea,
    until double precision NOT NULL
);
CREATE INDEX messages_receiver ON messages (receiver);
-- Processes no longer send each other requests, so their rows need no address and no signature.
DROP TABLE replicas;
CREATE TABLE replicas (
    id text PRIMARY KEY,
    place text NOT NULL,
    version text NOT NULL,
    since double precision NOT NULL,
    seen_at double precision NOT NULL,
    is_draining boolean NOT NULL,
    key_number text NOT NULL,
    catalogue text NOT NULL
);
-- Calls that became tasks: who runs each, and what clients see of it, sealed.
DROP TABLE mcp_tasks;
CREATE TABLE mcp_tasks (
    id text PRIMARY KEY,
    owner text NOT NULL,
    replica text NOT NULL,
    body bytea NOT NULL,
    until double precision NOT NULL
);
CREATE INDEX mcp_tasks_until ON mcp_tasks (until)
