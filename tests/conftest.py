"""What every test process sets up before anything is imported."""

from __future__ import annotations

import os

# PySpark starts Java by a fork with code before the exec. gRPC's fork handlers stop its threads in that moment, and now
# and then the child dies before it becomes Java ("epoll_wait error: Bad file descriptor"). No test uses gRPC in a
# forked child, so it need not handle forks here.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
