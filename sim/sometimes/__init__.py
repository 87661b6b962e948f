"""Points that good runs reach sometimes: what faults and load are for. Seen from outside, never told by the product."""
