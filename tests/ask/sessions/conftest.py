from postgres import database, database_url, postgres

__all__ = ["database", "database_url", "postgres"]
