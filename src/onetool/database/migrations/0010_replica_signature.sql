-- What only a holder of the cluster's key can write: a row without it says nothing to the other replicas.
ALTER TABLE replicas ADD COLUMN signature text NOT NULL DEFAULT ''
