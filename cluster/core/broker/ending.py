"""The end of a broker's life: at once, when nothing that it knows can be trusted, or in order."""

from __future__ import annotations

from typing import final

from cluster.core.broker.logs import BrokerLogs
from cluster.core.broker.maintenance import LogMaintenance
from cluster.core.outbox import Outbox
from cluster.core.replica.manager import ReplicaManager


@final
class Ending:
    """Ends the broker, and remembers whether it has ended. It is made before the parts that may have to end it."""

    def __init__(self, outbox: Outbox, logs: BrokerLogs) -> None:
        self._outbox = outbox
        self._logs = logs
        self.is_over = False

    def fail(self, reason: str) -> None:
        """Ends the broker at once, because it does not know the state of the disk or of the cluster any more."""
        if self.is_over:
            return
        # A node takes this reason for an orderly stop, and stops its controller too.
        assert reason != "shutdown", reason
        self.is_over = True
        self._outbox.stop(reason)
        self._logs.close_handles()

    def on_shut_down(self, now_ms: int, error: Exception | None) -> None:
        """Ends the broker after the job that closes the logs; `error` is what the job raised."""
        assert not self.is_over, error
        self.is_over = True
        self._outbox.stop("shutdown" if error is None else f"shutdown: {error}")


@final
class OrderlyStop:
    """The orderly end, after the controller has moved the leaders away."""

    def __init__(
        self, ending: Ending, manager: ReplicaManager, maintenance: LogMaintenance, logs: BrokerLogs
    ) -> None:
        self._ending = ending
        self._manager = manager
        self._maintenance = maintenance
        self._logs = logs

    def begin(self, now_ms: int) -> None:
        """Stops serving; one job then flushes and closes the logs, and writes the mark of a clean stop (STO-3).

        The jobs before it come to their ends, of which nobody hears: a directory whose disk has failed in one gets no
        mark (LL5).
        """
        assert not self._ending.is_over, now_ms
        context = self._manager.context
        self._manager.stop(now_ms)
        context.outbox.forget_all()
        stop_maintenance = self._maintenance.prepare_stop()
        close_logs = self._logs.prepare_shutdown(context.broker_epoch, now_ms)

        def shut_down() -> None:
            stop_maintenance()
            for error in context.outbox.unheard():
                self._logs.distrust_disk_of(error)
            close_logs()

        context.outbox.run_job("shutdown", shut_down, self._ending.on_shut_down)
