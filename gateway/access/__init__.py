"""Who asks and what they may see. Worked out on the server; nothing here reads a request."""
