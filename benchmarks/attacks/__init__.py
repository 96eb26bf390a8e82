"""Attacks by hostile or careless peers, on rocketd's and on Apache's servers, with figures of their cost to others."""
