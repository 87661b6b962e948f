"""The files checked in under `cluster/rpc/` are what protoc writes from `proto/` today."""

from __future__ import annotations

import pytest

from cluster.rpc import generate


def test_generated_code_equals_the_protocol_files() -> None:
    pytest.importorskip("grpc_tools", reason="grpcio-tools is absent: install the group `dev`")
    assert generate.differences() == []
