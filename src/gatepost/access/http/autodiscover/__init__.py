"""Autodiscover (SPEC C8): a client with an address and a password learns where everything is."""
