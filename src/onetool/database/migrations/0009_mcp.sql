-- Sessions of MCP clients: what any replica must know to serve one. `version` grows with each change of its body.
CREATE TABLE mcp_sessions (
    id text PRIMARY KEY,
    owner text NOT NULL,
    body text NOT NULL,
    version bigint NOT NULL,
    created_at double precision NOT NULL,
    used_at double precision NOT NULL
);
CREATE INDEX mcp_sessions_used ON mcp_sessions (used_at);
-- Calls that became tasks: who runs each, and what came of it. `body` is the task as clients read it, once it is over.
CREATE TABLE mcp_tasks (
    id text PRIMARY KEY,
    owner text NOT NULL,
    replica text NOT NULL,
    status text NOT NULL,
    body text,
    until double precision NOT NULL
);
CREATE INDEX mcp_tasks_until ON mcp_tasks (until);
