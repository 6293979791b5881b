"""Admission: rates, places and shared quotas. A rejection is an error with Retry-After."""
