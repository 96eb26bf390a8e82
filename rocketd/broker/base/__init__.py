"""Shared ground of the broker: settings, interfaces, refusals, and small helpers of many subpackages.

`settings` declares every setting; docs/settings.md is generated from it. `problems` declares every refusal, listed in
docs/errors.md. `interfaces` is the view of third parties, `hook_contexts` has the values that hooks get, and `extensions`
and `message_hooks` load their packages. `parts` declares the broker as the subpackages see it. `json_file` keeps
configuration files readable after a crash (docs/decisions/0008).
"""
