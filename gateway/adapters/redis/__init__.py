"""Redis: the shared quota, and the only place that knows redis-py."""
