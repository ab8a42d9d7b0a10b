"""Lane ``diagnose``: which tensors' update does not arrive on a server that a push leaves wrong."""
