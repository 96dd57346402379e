"""Images by their URL: fetched through the guard, looked at, stored, and queued to be read."""
