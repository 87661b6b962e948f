"""Generated from `proto/`: `python -m cluster.rpc.generate` writes it, `--check` compares it."""
