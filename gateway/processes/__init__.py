"""Processes: what runs. One web process or several under a supervisor, and import workers of their own."""
