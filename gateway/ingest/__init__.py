"""From a file to released knowledge: parse, chunk, embed, validate, activate."""
