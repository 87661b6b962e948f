"""The shell around a core: it runs the core with a clock, threads, files and gRPC."""
