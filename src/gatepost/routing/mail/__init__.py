"""Where mail goes next (SPEC T3)."""
