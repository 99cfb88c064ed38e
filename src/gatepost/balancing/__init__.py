"""Which of several servers: affinity, health, turns. Pure: facts and time come as arguments."""
