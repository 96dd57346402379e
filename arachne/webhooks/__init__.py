"""Standard Webhooks: endpoints, frozen bodies, signatures and delivery."""
