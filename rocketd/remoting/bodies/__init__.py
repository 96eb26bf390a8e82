"""JSON bodies of requests and answers, as typed records.

`tables` has those of clients, brokers and name servers, `admin` those of administration, `groups` and `lag` the answers
to rocketd's own requests. Attributes are the snake-case form of the wire names.
"""
