"""LangChain's vector store as a way to read; an extra, and the only place that knows the framework."""
