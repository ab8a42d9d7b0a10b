"""The server side: control plane, what the server says of itself, and the processes that we start."""
