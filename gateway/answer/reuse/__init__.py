"""Answers of one question for another: kept, or made for several at once."""
