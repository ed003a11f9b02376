"""What a training does once for all its replicas: shared functions, copies, and the exchange of gradients."""
