-- Digests of what replicas should have in common, signed like the row: so each can tell which one differs in what.
ALTER TABLE replicas ADD COLUMN catalogue text NOT NULL DEFAULT ''
