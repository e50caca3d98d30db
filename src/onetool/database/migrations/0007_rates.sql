-- How often somebody has called in the last window: its parts with their numbers, as JSON. Times are the database's.
CREATE TABLE rates (
    name text PRIMARY KEY,
    parts text NOT NULL,
    seen_at double precision NOT NULL,
    until double precision NOT NULL
);
