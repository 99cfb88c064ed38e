"""Gatepost: the front door of a mail fleet."""
