"""Questions that were measured once, to decide what the library offers: each a command of its own."""
