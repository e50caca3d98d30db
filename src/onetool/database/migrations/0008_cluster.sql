-- Who serves now: replicas of a cluster, or the workers of one machine. A row that is not renewed counts as gone.
CREATE TABLE replicas (
    id text PRIMARY KEY,
    address text NOT NULL,
    version text NOT NULL,
    since double precision NOT NULL,
    seen_at double precision NOT NULL,
    is_draining boolean NOT NULL
);
