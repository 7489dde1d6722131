"""Pools run jobs on devices: one Protocol, several ways."""
