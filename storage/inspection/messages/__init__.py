"""The messages inside control and metadata records, by Kafka's schemas."""
