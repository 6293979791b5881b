"""The parts behind the ports, each vendor in one place; only bootstrap knows them."""
