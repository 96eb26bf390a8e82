"""Settings of a daemon's process."""

from rocketd.common.settings.declaration import setting, settings_group


@settings_group
class ProcessConfig:
    """Place of the process on the machine. Apache leaves it to the operating system."""

    cpu_affinity: str = setting(
        "auto",
        "Core for the threads that share Python's interpreter lock (Linux). `auto`: one core, and another one if other "
        "processes need it. `off`: all cores. A number: this core. Threads that flush or allocate files use all cores.",
        remote=False,
    )
