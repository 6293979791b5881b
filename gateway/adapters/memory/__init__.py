"""In-memory twins of the ports: real semantics in dicts, nothing kept, for tests and development."""
