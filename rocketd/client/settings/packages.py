"""Optional packages: the error if one is missing."""

from importlib.util import find_spec

from rocketd.client.errors import IllegalOptionError


def need_package(what: str, package: str, extra: str) -> None:
    """Raise IllegalOptionError if a package is not installed. ``what`` needs it; ``extra`` of rocketd installs it."""
    try:
        found = find_spec(package)
    except ModuleNotFoundError:  # the package that has it is missing
        found = None
    if found is None:
        raise IllegalOptionError(
            f"{what} needs the package {package}, which is not installed: pip install 'rocketd[{extra}]'"
        )
