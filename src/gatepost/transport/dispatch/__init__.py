"""Messages on their way out: queued by next hop, handed to connections, settled by what came of them."""
