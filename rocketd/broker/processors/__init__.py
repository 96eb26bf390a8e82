"""The broker's request processors, one interface implementation for each kind of request."""
