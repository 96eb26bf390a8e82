"""The pipeline's figures: the parser alone, and through Spark beside Spark's own Kafka source."""
