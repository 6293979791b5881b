"""Redis: the shared quota, kept answers, hints of revocations; the only place that knows redis-py."""
