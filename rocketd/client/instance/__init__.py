"""What all clients of a process with one id share: connections, routes, heartbeats."""
