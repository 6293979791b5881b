"""Finding permitted passages of one release. Nothing here can search without scope and release."""
