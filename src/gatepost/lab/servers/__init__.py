"""Real servers, started in the foreground on loopback addresses: for the lab and for the integration tests."""
