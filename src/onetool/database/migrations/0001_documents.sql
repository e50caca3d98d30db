-- Small things by kind and key: what is known of MCP servers, logins, tokens, own examples, switches of built-in tools.
CREATE TABLE documents (
    kind text NOT NULL,
    key text NOT NULL,
    body bytea NOT NULL,
    version bigint NOT NULL,
    modified_at double precision NOT NULL,
    PRIMARY KEY (kind, key)
);
-- postgresql
CREATE SEQUENCE document_versions;
