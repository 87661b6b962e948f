"""Protobuf messages generated from `proto/`: `python -m cluster.rpc.generate` writes them, `--check` compares them."""
