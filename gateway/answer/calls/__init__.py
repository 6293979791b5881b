"""Calls of answer models: what is asked where and how often, and the way of their text to its readers."""
