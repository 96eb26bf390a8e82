"""Messages as an application sees them, and their codecs."""
