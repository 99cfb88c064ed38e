"""The shared state of several machines' front ends: their accounts, counts, devices and sign-outs in one store."""
