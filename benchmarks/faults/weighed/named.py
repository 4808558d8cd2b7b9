"""The loops by their names. A framework is imported by the loop that needs it."""

from benchmarks.faults.weighed import frameworks, loops

__all__ = ["LOOPS"]

LOOPS: dict[str, type[loops.Loop]] = {
    "plain": loops.Loop,
    "dealer": loops.Dealt,
    "loader": loops.LoaderLoop,
    "loader with ids": loops.WithIds,
    "stateful": loops.Stateful,
    "own sampler": loops.OwnSamplerLoop,
    "own batches": loops.OwnBatchesLoop,
    "id_key": loops.Sorting,
    "stream": loops.Streamed,
    "watch by weight": loops.Watched,
    "accelerate": loops.Accelerated,
    "iterable": loops.IterableLoop,
    "webdataset": loops.Tarred,
    "tf.data": frameworks.TensorLoop,
    "grain": frameworks.GrainLoop,
    "keras": frameworks.InKeras,
    "trainer": frameworks.InTrainer,
    "trainer by weight": frameworks.TrainerByWeight,
    "lightning": frameworks.InLightning,
}
