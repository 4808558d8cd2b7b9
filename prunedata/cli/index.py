"""The command ``prunedata index``: index the samples of WebDataset shards."""

import argparse
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from prunedata.cli.text import working
from prunedata.errors import PrunedataError
from prunedata.streams.shards import ShardIndex, expand


def scan(args: argparse.Namespace) -> None:
    """Write the index, and print how many samples it has."""
    shards = [url for shards in args.shards for url in expand(shards)]
    output = Path(args.output)
    if output.is_dir() or not output.parent.is_dir():  # reading all shards may take hours
        raise PrunedataError(f"Expected --output to be a file in a folder that exists. Got {args.output}.")
    with working() as show:
        index = ShardIndex.scan(shards, progress=lambda urls: _counted(urls, show))
    index.save(args.output)
    if args.json:
        print(json.dumps({"shards": len(index.shards), "samples": len(index), "output": args.output}))
    else:
        print(f"{len(index):,} samples in {len(index.shards):,} shards -> {args.output}")


def _counted(shards: Iterable[str], show: Callable[[float, str], None]) -> Iterator[str]:
    """Yield the shards, and show how many are done."""
    shards = list(shards)
    for done, shard in enumerate(shards):
        show(done / len(shards), f"{done:,} of {len(shards):,} shards")
        yield shard
