"""Independent services: none imports another, except topics, which uses file_access, and otel, which uses metrics."""
