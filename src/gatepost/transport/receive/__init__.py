"""Taking mail: the connections of receive connectors (SPEC T1), between the SMTP machine and the `Intake`."""
