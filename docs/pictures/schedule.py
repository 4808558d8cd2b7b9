"""Draw docs/pictures/schedule.svg, the picture of a schedule: python docs/pictures/schedule.py."""

from pathlib import Path

from prunedata import Schedule

__all__ = ["draw"]

CELL, PITCH, ROW = 9, 11, 34
LEFT, TOP = 80, 42
PRUNED, FULL, INK = "#3f51b5", "#c5cae9", "#808080"  # seen on white and on black


def draw(schedule: Schedule) -> str:
    """Return the SVG of a schedule: a row for each window, a square for each epoch."""
    longest = max(length for _, length in schedule.windows)
    width, height = LEFT + longest * PITCH + 10, TOP + len(schedule.windows) * ROW + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="sans-serif" font-size="12" fill="{INK}">',
        "<title>Each row is a window, each square an epoch; dark epochs train on pruned data</title>",
        *_brace(0, schedule.start, f"start {schedule.start}: all samples"),
        *_brace(schedule.start, schedule.block, f"block {schedule.block}: {schedule.pruned_per_block} of them pruned"),
    ]
    for row, (first, length) in enumerate(schedule.windows):
        y = TOP + row * ROW
        parts.append(f'<text x="{LEFT - 10}" y="{y + 14}" text-anchor="end">epoch {first}</text>')
        for place in range(length):
            colour = PRUNED if schedule.prunes(first + place) else FULL
            parts.append(
                f'<rect x="{LEFT + place * PITCH}" y="{y}" width="{CELL}" height="20" rx="2" fill="{colour}"/>'
            )
    foot = f"attenuation {schedule.attenuation:g}: each window begins to prune earlier than the one before"
    parts.append(f'<text x="{LEFT}" y="{height - 8}">{foot}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _brace(place: int, epochs: int, text: str) -> list[str]:
    """Return a bracket over `epochs` squares of the first row; later ones stand higher, as texts are long."""
    left, right = LEFT + place * PITCH, LEFT + (place + epochs) * PITCH - (PITCH - CELL)
    return [
        f'<path d="M{left} {TOP - 6}v-6h{right - left}v6" fill="none" stroke="{INK}"/>',
        f'<text x="{left}" y="{TOP - 20}">{text}</text>',
    ]


if __name__ == "__main__":
    paper = Schedule(epochs=200, window=60, start=20, block=5, pruned_per_block=4, attenuation=2)
    Path(__file__).with_name("schedule.svg").write_text(draw(paper), encoding="utf-8")
