"""The replicated cluster: a sans-IO core (roles, fetch, high watermark, ISR, epochs) and its gRPC shell."""
