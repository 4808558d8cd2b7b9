"""A page to look at suspects one by one, by keys: it runs in a browser alone, and saves what was said as a file."""
