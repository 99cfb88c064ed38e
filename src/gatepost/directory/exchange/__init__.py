"""An Exchange organization as Active Directory's configuration partition has it: read, never written."""
