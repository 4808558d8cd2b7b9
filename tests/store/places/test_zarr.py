"""The durable store is one of zarr's: it passes the suite that zarr has for stores."""

from pathlib import Path

import pytest
from zarr.core.buffer import Buffer, cpu
from zarr.core.sync import sync
from zarr.testing.store import StoreTests

from prunedata.store.durable import DurableStore

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


class TestDurableStore(StoreTests[DurableStore, cpu.Buffer]):
    store_cls = DurableStore
    buffer_cls = cpu.Buffer

    async def get(self, store: DurableStore, key: str) -> Buffer:
        return self.buffer_cls.from_bytes((store.root / key).read_bytes())

    async def set(self, store: DurableStore, key: str, value: Buffer) -> None:
        path = store.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(value.to_bytes())

    @pytest.fixture
    def store_kwargs(self, tmp_path: Path) -> dict[str, str]:
        return {"root": str(tmp_path)}

    @pytest.fixture
    def store(self, open_kwargs: dict[str, str]) -> DurableStore:
        return sync(DurableStore.open(**open_kwargs))

    @pytest.fixture
    def store_not_open(self, store_kwargs: dict[str, str]) -> DurableStore:
        return DurableStore(**store_kwargs)

    def test_store_repr(self, store: DurableStore) -> None:
        assert str(store) == f"file://{store.root.as_posix()}"

    def test_store_supports_writes(self, store: DurableStore) -> None:
        assert store.supports_writes

    def test_store_supports_listing(self, store: DurableStore) -> None:
        assert store.supports_listing
