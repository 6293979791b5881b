"""OpenAI-compatible endpoints, and the only place that knows the SDK and its transport."""
