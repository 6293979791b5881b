"""Rerankers behind an HTTP endpoint."""
