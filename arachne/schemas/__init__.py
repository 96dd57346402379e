"""SQLModel tables and pydantic wire models. Opens no connection."""
