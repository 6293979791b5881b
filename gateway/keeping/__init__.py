"""Keeping: backups, restores, and whether the catalog and what it names still agree."""
