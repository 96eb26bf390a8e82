"""Shared ground of the broker: settings, interfaces, refusals, and small helpers of many rooms.

`settings` declares every setting; docs/settings.md is generated from it. `problems` declares every refusal, listed in
docs/errors.md. `interfaces` is the view of third parties, `hook_contexts` has the values that hooks get, and `extensions`
and `message_hooks` load their packages. `parts` declares the broker as the rooms see it. `json_file` keeps
configuration files safe (docs/decisions/0008).
"""
