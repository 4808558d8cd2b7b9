"""A page as a browser without a script reads it: its elements, its text, and whether it is whole."""

from html.parser import HTMLParser

__all__ = ["Reader", "read"]

VOID = {"meta", "link", "img", "input"}
BLOCKS = {"p", "td", "th", "h1", "h2", "h3", "li", "dt", "dd", "div", "caption", "text", "title", "desc"}


class Reader(HTMLParser):
    """Reads a page, and raises if an element is not closed where it should be."""

    def __init__(self):
        super().__init__()
        self.open, self.elements, self.words = [], [], []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag, f"</{tag}> closes another element"
        if tag in BLOCKS:
            self.words.append("\n")

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.words.append(data)

    def all(self, tag):
        """The attributes of each element of a kind."""
        return [attrs for name, attrs in self.elements if name == tag]

    @property
    def text(self):
        """What stands on the page, with plain spaces."""
        return "".join(self.words).replace("\N{NO-BREAK SPACE}", " ")


def read(html):
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == []
    return reader
