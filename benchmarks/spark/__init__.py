"""The pipeline's measurements: the parser alone, and through Spark beside Spark's own Kafka source."""
