"""rocketd up, try and the run commands: servers in the foreground."""
