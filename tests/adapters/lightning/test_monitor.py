"""Lightning's logged figure is handed to the pruner in each epoch that is validated."""

import pytest

from prunedata.adapters.lightning import DataPruning
from prunedata.errors import PrunedataError
from tests.adapters.lightning.helpers import QUIET, Net, loader_of, pruner_of, trainer_of, validation

pytestmark = QUIET
LENGTHS = [10, 6, 8, 12]


class Logging(Net):
    """Logs the mean of its validation losses."""

    def __init__(self):
        super().__init__()
        self.logged = {}

    def validation_step(self, batch, index):
        loss = self.losses(batch).mean()
        self.log("val_loss", loss)
        return super().validation_step(batch, index)

    def on_validation_epoch_end(self):
        if not self.trainer.sanity_checking:
            self.logged[self.current_epoch] = float(self.trainer.callback_metrics["val_loss"])


def fit(monitor="val_loss", mode="min", **options):
    pruner, net = pruner_of(LENGTHS), Logging()
    trainer = trainer_of(pruner, **options)
    trainer.callbacks = [one for one in trainer.callbacks if not isinstance(one, DataPruning)]
    trainer.callbacks.append(DataPruning(pruner, monitor=monitor, mode=mode))
    trainer.fit(net, loader_of(pruner), validation())
    return pruner, trainer


def test_each_epoch_has_the_figure_of_its_own_validation():
    pruner, trainer = fit()
    figures = [record["validation"] for record in pruner.history]
    assert len(figures) == 4
    assert figures[-1] == pytest.approx(float(trainer.callback_metrics["val_loss"]))
    assert len(set(figures)) == 4
    assert all(record["lower_is_better"] for record in pruner.history)


def test_an_epoch_that_is_not_validated_has_none():
    pruner, _ = fit(check_val_every_n_epoch=2)
    assert ["validation" in record for record in pruner.history] == [False, True, False, True]


def test_without_a_name_nothing_is_handed_over():
    pruner, _ = fit(monitor=None, mode="max")
    assert not any("validation" in record for record in pruner.history)


def test_a_name_that_nobody_logs_is_told():
    with pytest.raises(
        PrunedataError, match=r"Expected 'val_acc' among the logged values, as monitor names\. Got loss"
    ):
        fit(monitor="val_acc", mode="max")


def test_another_mode_is_refused():
    with pytest.raises(PrunedataError, match="Expected mode to be"):
        DataPruning(pruner_of(LENGTHS), mode="best")
