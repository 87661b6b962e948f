// The replicas' logs at any event, from the changes that the trace reports.

const Op = { EXTEND: 0, CUT: 1, START: 2 };
// A log is replayed from the last checkpoint: so many changes at most for each look.
const CHANGES_A_CHECKPOINT = 256;

function prepareReplica(replica) {
  const count = replica.changes.length / 4;
  replica.changeRow = new Int32Array(count);
  replica.logEnd = new Float64Array(count);
  replica.checkpoints = [];
  let log = { start: 0, runs: [] };
  for (let i = 0; i < count; i++) {
    if (i % CHANGES_A_CHECKPOINT === 0) replica.checkpoints.push(copyLog(log));
    applyChange(log, replica.changes, i);
    replica.changeRow[i] = replica.changes[4 * i];
    replica.logEnd[i] = logEndOf(log);
  }
  const marks = replica.highWatermarks;
  replica.markRow = Int32Array.from({ length: marks.length / 2 }, (_, i) => marks[2 * i]);
  replica.mark = Float64Array.from({ length: marks.length / 2 }, (_, i) => marks[2 * i + 1]);
  replica.roleRow = Int32Array.from(replica.roles, (role) => role[0]);
}

const copyLog = (log) => ({ start: log.start, runs: log.runs.map((run) => ({ ...run })) });
const logEndOf = (log) => (log.runs.length ? log.runs[log.runs.length - 1].end : log.start);

function applyChange(log, changes, i) {
  const [op, offset, epoch] = [changes[4 * i + 1], changes[4 * i + 2], changes[4 * i + 3]];
  if (op === Op.EXTEND) {
    const last = log.runs[log.runs.length - 1];
    if (last && last.epoch === epoch) last.end = offset;
    else log.runs.push({ end: offset, epoch });
  } else if (op === Op.CUT) {
    while (log.runs.length && log.runs[log.runs.length - 1].end > offset) {
      const { epoch: cut } = log.runs.pop();
      if (logEndOf(log) < offset) log.runs.push({ end: offset, epoch: cut });
    }
  } else {
    log.runs = log.runs.filter((run) => run.end > offset);
    log.start = offset;
  }
}

// The log after the event `row`: where it starts, and its runs of one epoch each.
function logAt(replica, row) {
  const count = upperBound(replica.changeRow, row);
  const checkpoint = Math.max(0, Math.ceil(count / CHANGES_A_CHECKPOINT) - 1);
  const log = replica.checkpoints.length ? copyLog(replica.checkpoints[checkpoint]) : { start: 0, runs: [] };
  for (let i = checkpoint * CHANGES_A_CHECKPOINT; i < count; i++) applyChange(log, replica.changes, i);
  return log;
}

function valueAt(rows, values, row) {
  const place = upperBound(rows, row);
  return place ? values[place - 1] : 0;
}

const highWatermarkAt = (replica, row) => valueAt(replica.markRow, replica.mark, row);

function roleAt(replica, row) {
  const place = upperBound(replica.roleRow, row);
  return place ? { role: replica.roles[place - 1][1], epoch: replica.roles[place - 1][2] } : { role: "", epoch: -1 };
}

function stateAt(partition, row) {
  let found = null;
  for (const state of partition.states) {
    if (state[0] > row) break;
    found = state;
  }
  return found && { leader: found[1], epoch: found[2], isr: found[3] };
}
