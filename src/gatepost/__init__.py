"""Gatepost: the front door of a mail fleet."""

__version__ = "0.1.0"
