"""The running answer: events and their order, the session, the registry of sessions."""
