"""From evidence to an answer: gate, prompt, model, citations, and the path that joins them."""
