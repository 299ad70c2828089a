"""The live snapshot: what audits search, kept current beside the store."""

import asyncio
import time
from collections.abc import Mapping, Sequence

import structlog

from rectifier_core.indicator import DEFAULT_TENANT, Status
from rectifier_core.pools import PoolKey, Pools
from rectifier_core.snapshot import Snapshot
from rectifier_core.store import IndicatorStore

POLL_INTERVAL_S = 2.0
STALE_AFTER_S = 15.0

log = structlog.get_logger()


class LiveSnapshot:
    """Holds the newest snapshot of the active indicators and replaces it when a pool changes.

    It carries on with the last one while the store or Redis is away; ``age_s`` and ``is_stale``
    say so.
    """

    def __init__(
        self,
        store: IndicatorStore,
        pools: Pools,
        *,
        dimension: int,
        poll_interval_s: float = POLL_INTERVAL_S,
        stale_after_s: float = STALE_AFTER_S,
    ) -> None:
        """Start empty; `refresh` fills it.

        Args:
            store: Holds the indicators; opened and closed elsewhere.
            pools: Knows their versions.
            dimension: Length of a vector.
            poll_interval_s: Seconds between two looks for changes.
            stale_after_s: Seconds after which an unconfirmed snapshot is stale.
        """
        self._store = store
        self._pools = pools
        self._dimension = dimension
        self._poll_interval_s = poll_interval_s
        self._stale_after_s = stale_after_s
        self._snapshot = Snapshot.build([], dimension=dimension)
        self._versions: Mapping[PoolKey, str] = {}
        self._confirmed = float("-inf")
        self._refreshing = asyncio.Lock()

    @property
    def current(self) -> Snapshot:
        """The newest snapshot."""
        return self._snapshot

    @property
    def age_s(self) -> float:
        """Seconds since the snapshot was last known to be current."""
        return time.monotonic() - self._confirmed

    @property
    def is_stale(self) -> bool:
        """True where that is longer ago than a few polls."""
        return self.age_s > self._stale_after_s

    def version(self, pools: Sequence[str] | None, *, tenant: str = DEFAULT_TENANT) -> str:
        """Return ``pool@version`` of the pools, comma-separated; of all where None."""
        found = (
            f"{key.pool}@{version}"
            for key, version in sorted(self._versions.items())
            if key.tenant == tenant and (pools is None or key.pool in pools)
        )
        return ",".join(found)

    def known_pools(self, *, tenant: str = DEFAULT_TENANT) -> frozenset[str]:
        """Return the names of the tenant's pools, those of the snapshot among them.

        Redis may have lost the versions of pools whose indicators are still searched.
        """
        named = {key.pool for key in self._versions if key.tenant == tenant}
        return frozenset(named | self._snapshot.pools(tenant))

    async def refresh(self) -> bool:
        """Look for changes and take them in; return whether there were any.

        Raises:
            StoreError: The store did not answer.
            StateError: Redis did not answer.
        """
        async with self._refreshing:
            began = time.monotonic()
            versions = await self._pools.versions()
            is_changed = versions != self._versions
            if is_changed:
                stored = [entry async for entry in self._store.scan(status=Status.ACTIVE)]
                # The matrices and the word index take CPU time: off the loop, then one swap.
                self._snapshot = await asyncio.to_thread(
                    Snapshot.build, stored, dimension=self._dimension
                )
                self._versions = versions
                log.info("snapshot_built", indicators=len(stored), pools=len(versions))
            self._confirmed = began
            return is_changed

    async def follow(self) -> None:
        """Refresh at every interval until cancelled."""
        while True:
            await asyncio.sleep(self._poll_interval_s)
            try:
                await self.refresh()
            except Exception as error:  # noqa: BLE001 - the top of a loop that must not end
                log.warning("snapshot_not_refreshed", kind=type(error).__name__, age_s=self.age_s)
