"""Standpipe serves the tables that Spark streams keep, and keeps serving them while servers die."""
