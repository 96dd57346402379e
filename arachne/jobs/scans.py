"""Parts of statements that find what is in an index by as few probes as there are answers."""

from typing import Literal


def accounts_with(state: Literal["queued", "fetching"]) -> str:
    """A recursive CTE named as the state: the `account_id` of each account with images in it, and a null at the end.

    A probe an account, however many images each has, which `SELECT DISTINCT` would walk one by one.
    """
    return f"""{state} AS (
    (SELECT account_id FROM image WHERE state = '{state}' ORDER BY account_id LIMIT 1)
    UNION ALL
    SELECT (SELECT following.account_id FROM image following WHERE following.state = '{state}'
              AND following.account_id > {state}.account_id ORDER BY following.account_id LIMIT 1)
    FROM {state} WHERE {state}.account_id IS NOT NULL)"""  # noqa: S608  # the states are ours
