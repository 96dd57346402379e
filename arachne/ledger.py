"""The ledger: what each finished image costs, written once an image at the prices its plan has then.

An image counts as the `units` on its row: what its result says, or before it has one what its header says. Of several
frames one at most is described, so the VLM's price is charged once.
"""

from collections.abc import Sequence

from sqlalchemy import text

from arachne.database import Transaction
from arachne.ids import new_id

# A cached image has a price of its own; a degraded one is charged without the VLM it did not get. The prices are kept
# with the entry, so that later ones change nothing of the past.
_CHARGE = text("""
INSERT INTO usage_entry (entry_id, account_id, subject, job_id, image_id, at, cached, degraded, model_version,
                         units, cpu_s, gpu_s, size_bytes, plan_id, unit_price, vlm_price, amount, currency)
SELECT charged.entry_id, job.account_id, job.subject, job.job_id, image.image_id, image.finished_at,
       image.cached, image.degraded, coalesce(image.model_version, 'none'), image.units, :cpu_s, :gpu_s,
       coalesce(image.size_bytes, 0), plan.plan_id, price.unit, price.vlm, image.units * price.unit + price.vlm,
       plan.currency
FROM unnest(CAST(:entry_ids AS text[]), CAST(:image_ids AS text[])) AS charged(entry_id, image_id)
JOIN image USING (image_id) JOIN job USING (job_id)
JOIN account ON account.account_id = job.account_id JOIN plan USING (plan_id)
CROSS JOIN LATERAL (SELECT
    CASE WHEN image.cached THEN plan.price_cached ELSE plan.price_image END AS unit,
    CASE WHEN image.cached OR image.degraded OR coalesce(image.model_version, 'none') = 'none' THEN 0
         ELSE plan.price_vlm END AS vlm) AS price
WHERE image.state = 'completed'
ON CONFLICT (image_id) DO NOTHING
""")


def charge(transaction: Transaction, image_ids: Sequence[str], *, cpu_s: float = 0.0, gpu_s: float = 0.0) -> None:
    """The completed ones of these images are in the ledger; those that were there already stay as they are.

    Seconds are of processor and GPU time.
    """
    transaction.session.execute(
        _CHARGE,
        {
            "entry_ids": [new_id("use") for _ in image_ids],
            "image_ids": list(image_ids),
            "cpu_s": cpu_s,
            "gpu_s": gpu_s,
        },
    )
