"""The core of a connection: streams and unary calls as frames of bytes, without any I/O."""
