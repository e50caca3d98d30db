-- Bundles, tools and what is set of built-in ones. Replicas follow the revision: each change has the next one, and every
-- row that it touches gets it. Who changes something locks the row of bundle_store first: so changes are in order.
CREATE TABLE bundle_store (
    is_only boolean PRIMARY KEY CHECK (is_only),
    born text NOT NULL,
    revision bigint NOT NULL,
    key bytea NOT NULL
);
INSERT INTO bundle_store (is_only, born, revision, key) VALUES (
    true,
    {random_id},
    0,
    {random_key}
);
CREATE TABLE bundles (
    id text PRIMARY KEY,
    slug text NOT NULL,
    body bytea NOT NULL,
    revision bigint NOT NULL
);
CREATE INDEX bundles_by_revision ON bundles (revision);
CREATE TABLE bundle_tools (
    id text PRIMARY KEY,
    bundle text NOT NULL REFERENCES bundles (id),
    slug text NOT NULL,
    version text NOT NULL,
    body bytea NOT NULL,
    revision bigint NOT NULL,
    UNIQUE (bundle, slug, version)
);
CREATE INDEX bundle_tools_by_revision ON bundle_tools (revision);
-- What was there not long ago. A replica that was away for longer reads everything.
CREATE TABLE bundles_gone (
    id text NOT NULL,
    is_bundle boolean NOT NULL,
    revision bigint NOT NULL,
    PRIMARY KEY (id, is_bundle)
);
CREATE INDEX bundles_gone_by_revision ON bundles_gone (revision);
CREATE TABLE bundle_switches (
    is_only boolean PRIMARY KEY CHECK (is_only),
    body bytea NOT NULL,
    revision bigint NOT NULL
);
CREATE TABLE bundle_usage (
    tool text PRIMARY KEY,
    calls bigint NOT NULL,
    last_called_at text NOT NULL
);
