"""How the report is drawn: elements and their escaping, charts, thumbnails, the look of the page."""
