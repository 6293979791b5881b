"""The HTTP surface, one file a resource."""
