"""What every test process sets up before anything is imported."""

from __future__ import annotations

import os
import signal
import threading

# PySpark starts Java by a fork with code before the exec. gRPC's fork handlers stop its threads in that moment, and now
# and then the child dies before it becomes Java ("epoll_wait error: Bad file descriptor"). No test uses gRPC in a
# forked child, so it need not handle forks here.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

# A shell lets its background commands ignore Ctrl-C, and nohup lets its command ignore a hangup; so would each command
# that a test starts and ends.
if threading.current_thread() is threading.main_thread():
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
