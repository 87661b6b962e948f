"""The error of the data source, which Spark shows to a user. This module does not use Spark."""

from __future__ import annotations


class SourceError(Exception):
    """An option or a directory that the source cannot use; its message is one line with the reason."""
