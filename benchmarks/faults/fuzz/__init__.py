"""Random loaders, orders and ranks, trained with the library and judged by a plain loop that knows nothing of it."""
