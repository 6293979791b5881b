"""What works without any endpoint: the bundled embedder, extractive answers, and thresholds of spaces."""
