"""The dump of a log's files as text, in the lines of Kafka's dump tool."""
