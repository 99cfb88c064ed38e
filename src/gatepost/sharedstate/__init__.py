"""What the front ends of one organization must all know of devices and sign-outs, beside registry and directory."""
