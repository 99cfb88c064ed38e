"""The queues in memory: what is to go where, and when next. No I/O, no clock: times are arguments, in seconds."""
