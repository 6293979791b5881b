"""Milvus: chunks in Milvus Lite and in servers, and the only place that knows pymilvus."""
