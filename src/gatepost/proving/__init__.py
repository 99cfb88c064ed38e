"""What shows that the product keeps its promises under load, on this machine: `gatepost proving`."""
