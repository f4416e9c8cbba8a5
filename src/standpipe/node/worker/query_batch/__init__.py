"""POST /query-batch: many keys of one table in one request."""
