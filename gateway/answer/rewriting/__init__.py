"""Rewriting: follow-ups told by a model instead of by rules, where that is wanted and goes well."""
