"""Draw docs/pictures/report.png, a report in Chromium, by playwright: python docs/pictures/report.py."""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image
from playwright.sync_api import sync_playwright
from sklearn.datasets import load_digits

from prunedata import Pruner, Schedule, report

__all__ = ["digits", "draw", "train"]

SIZE = {"width": 900, "height": 1180}
COLOURS = 48


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Return the digits, four times as large, and their labels, of which four in ten were made wrong at random."""
    images, labels = load_digits(return_X_y=True)
    random = np.random.default_rng(0)
    wrong = random.permutation(len(labels))[:720]
    labels[wrong] = (labels[wrong] + random.integers(1, 10, 720)) % 10
    return np.kron(images.reshape(-1, 8, 8) / 16, np.ones((4, 4))).reshape(-1, 1024), labels


def train(pruner: Pruner, pixels: np.ndarray, labels: np.ndarray, rate: float = 0.3) -> None:
    """Train a network with one hidden layer, large enough that an epoch takes some time."""
    random = np.random.default_rng(0)
    first, second = random.normal(0, 0.03, (1024, 512)), random.normal(0, 0.03, (512, 10))
    for epoch in pruner.epochs():
        for ids in epoch.batches(64):
            factors = epoch.factors(ids)[:, None]
            hidden = np.maximum(pixels[ids] @ first, 0)
            scores = hidden @ second
            shares = np.exp(scores - scores.max(axis=1, keepdims=True))
            shares /= shares.sum(axis=1, keepdims=True)
            right = np.arange(len(ids)), labels[ids]
            pruner.observe(-np.log(np.maximum(shares[right], 1e-12)), ids)
            shares[right] -= 1
            shares *= factors
            back = (shares @ second.T) * (hidden > 0)
            second -= rate / len(ids) * hidden.T @ shares
            first -= rate / len(ids) * pixels[ids].T @ back


def draw(page: Path, picture: Path) -> None:
    """Photograph a page, and store the picture in few colours."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        window = opened.new_page(viewport=SIZE, color_scheme="light")
        window.goto(page.as_uri())
        window.screenshot(path=picture)
        opened.close()
    with Image.open(picture) as image:
        image.convert("RGB").quantize(COLOURS).save(picture, optimize=True)


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        pixels, labels = digits()
        pruner = Pruner(
            len(labels), Schedule.steady(60), prune="45%", policy="auto", holdout=0.1, store=Path(folder, "run.zarr")
        )
        train(pruner, pixels, labels)
        images = (255 * pixels.reshape(-1, 32, 32)).astype(np.uint8)
        report(Path(folder, "run.zarr"), Path(folder, "report.html"), dataset=list(zip(images, labels, strict=True)))
        draw(Path(folder, "report.html"), Path(__file__).with_name("report.png"))
