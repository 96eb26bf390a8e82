"""The request codes of the broker's own processors, as their plugin descriptors declare them."""

from twisted.plugins import rocketd_broker_processors


def codes_of(processor_type: type) -> tuple[int, ...]:
    """Return the codes that a class of processors is registered for."""
    path = f"{processor_type.__module__}.{processor_type.__qualname__}"
    return tuple(
        code
        for plugin in vars(rocketd_broker_processors).values()
        if isinstance(plugin, rocketd_broker_processors.BuiltInProcessor) and plugin.path == path
        for code in plugin.codes
    )
