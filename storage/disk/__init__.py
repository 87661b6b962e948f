"""The `FileSystem` port, the operating system's file system, and the small files written whole."""
