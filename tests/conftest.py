"""Settings of all tests.

Properties are tried on the same examples each time (profile `repeatable`): a red run of the test command is a change's doing,
and is red again.  `make properties` looks for new counter-examples (profile `search`); what it finds becomes an `@example`.
None has a deadline: the machine may be busy.
"""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("search", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("PROPERTIES", "repeatable"))
