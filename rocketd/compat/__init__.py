"""The names of other clients of RocketMQ, on rocketd's client, for programs that were written for them."""
