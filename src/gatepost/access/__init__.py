"""The protocols' front ends: sign-in, decision, hand-over."""
