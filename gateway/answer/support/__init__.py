"""What carries a sentence: quotes, numbers, units and opposites, read in the passages it names."""
