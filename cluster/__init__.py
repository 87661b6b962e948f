"""The replicated cluster: a core without I/O (roles, fetch, high watermark, ISR, epochs) and its gRPC shell."""
