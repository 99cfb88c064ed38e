"""DKIM signatures on mail that leaves (RFC 6376, RFC 8463): keys by domain, canonical forms, signing off the loop."""
