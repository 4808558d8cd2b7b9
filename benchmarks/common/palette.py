"""The colours of all pictures.

Okabe and Ito's first, then Tol's: told apart with any colour vision.
"""

__all__ = [
    "BLACK", "BLUE", "DARK_GREY", "GREEN", "GREY", "INDIGO", "LIGHT_GREY", "OLIVE", "ORANGE", "PINK", "SHADE", "SKY",
    "SPARE_COLOURS", "SPARE_MARKERS", "VERMILION", "WINE",
]  # fmt: skip

BLACK, DARK_GREY, GREY, LIGHT_GREY = "#000000", "#404040", "#8a8a8a", "#999999"
BLUE, VERMILION, ORANGE, SKY, GREEN, PINK = "#0072b2", "#d55e00", "#e69f00", "#56b4e9", "#009e73", "#cc79a7"
WINE, OLIVE, INDIGO = "#882255", "#999933", "#332288"
SPARE_COLOURS = ("#dd3497", "#117733", "#aa4499", "#661100", "#6699cc")
SPARE_MARKERS = ("h", "H", "8")
"""For what has no colour or marker of its own."""
SHADE = "#e4ecf4"
"""Behind pruned epochs."""
