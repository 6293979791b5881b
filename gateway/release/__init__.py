"""Released knowledge: which revision a question is bound to."""
