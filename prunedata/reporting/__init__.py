"""The report of a run: one page of HTML that needs no network, and one on which its suspects are judged."""
