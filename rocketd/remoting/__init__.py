"""The wire: frames, commands, headers, dispatch to processors, and the invoke layer."""
