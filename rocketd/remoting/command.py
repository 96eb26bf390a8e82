"""Former path of `rocketd.remoting.wire.command`, for processor plugins. Will be removed after the next release."""

from warnings import warn

from rocketd.remoting.wire.command import *  # noqa: F403

warn("rocketd.remoting.command is now rocketd.remoting.wire.command", DeprecationWarning, stacklevel=2)
