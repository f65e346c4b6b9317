"""The pages, a module each: ``PAGE`` is its page, ``FORMS`` (may be missing) what it posts."""
