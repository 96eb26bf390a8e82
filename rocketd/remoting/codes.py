"""Former path of `rocketd.remoting.wire.codes`, for processor plugins. Will be removed after the next release."""

from warnings import warn

from rocketd.remoting.wire.codes import *  # noqa: F403

warn("rocketd.remoting.codes is now rocketd.remoting.wire.codes", DeprecationWarning, stacklevel=2)
