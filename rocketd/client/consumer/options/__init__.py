"""The choices of an application: options of each kind of consumer, subscriptions, and the limits of held messages."""
