"""Evaluation: labelled questions put to a whole gateway, and every figure that comes out of it."""
