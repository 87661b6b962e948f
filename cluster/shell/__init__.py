"""What acts: runs a core with a clock, threads, files and gRPC."""
