"""The controller: decides on topics, brokers and leaders, and writes each decision to its log."""
