"""What samples of conversations look like, which a trainer tokenizes only when it collates them."""

from PIL import Image

from prunedata.adapters.watched.shown import Shown
from prunedata.reporting.previews import Previews


def test_a_conversation_about_a_picture_is_shown_as_its_texts_and_the_picture():
    asked = [{"type": "image"}, {"type": "text", "text": "what is it?"}]
    sample = {
        "images": [Image.new("RGB", (4, 4), "red")],
        "prompt": [{"role": "system", "content": "be short"}, {"role": "user", "content": asked}],
        "completion": [{"role": "assistant", "content": "a cat"}],
    }
    found = Previews(Shown([sample], None), 1).of(0)
    assert found.image is not None
    assert dict(found.row) == {"prompt": "be short / what is it?", "completion": "a cat"}


def test_other_values_are_as_they_are():
    sample = {"text": "one", "numbers": [1, 2], "none": []}
    assert Shown([sample], None)[0] == sample
