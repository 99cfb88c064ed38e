"""One policy for the sign-ins of all protocols: who may, from where, and what wrong passwords cost."""
