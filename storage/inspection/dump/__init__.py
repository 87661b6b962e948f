"""The files of a log as text, as Kafka's dump tool prints them."""
