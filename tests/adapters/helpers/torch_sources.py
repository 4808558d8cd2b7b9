"""Raw samples as PyTorch's IterableDatasets: one as it should be, and two that fall into traps."""

from torch.utils.data import IterableDataset, get_worker_info


class Records(IterableDataset):
    """Records of which each worker gives a share."""

    def __init__(self, records, then=None):
        self.records, self.then = records, then

    def map(self, then):
        return Records(self.records, then)

    def __iter__(self):
        worker = get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        own = self.records[first::step]
        yield from own if self.then is None else map(self.then, own)


class StaleMask(IterableDataset):
    """The trap: the mask lies on the dataset, of which persistent workers hold a copy."""

    def __init__(self, samples):
        self.samples, self.keep = samples, None

    def __iter__(self):
        worker = get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        yield from ((number, number) for number in range(first, self.samples, step) if self.keep[number])


class Positions(IterableDataset):
    """The trap: the id is a position, and every worker counts from zero. The raw samples are as they should be."""

    def __init__(self, samples):
        self.samples = samples

    def __iter__(self):
        worker = get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        yield from (
            {"uid": place, "text": str(number)} for place, number in enumerate(range(first, self.samples, step))
        )
