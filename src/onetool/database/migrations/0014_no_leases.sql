-- Replicas no longer share stdio servers.
DROP TABLE IF EXISTS leases;
