"""Front ends among themselves (SPEC C11): the organization's CA, who a peer is, how a user's identity crosses."""
