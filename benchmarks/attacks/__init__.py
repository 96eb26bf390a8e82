"""Attacks by hostile or careless peers, on rocketd's and on Apache's servers, with measurements of their cost to others."""
