"""The data plane: the publisher process, the one adapter to vLLM's trainer side, and the gloo backend."""
