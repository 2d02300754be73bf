"""What each tenant knows of a model at an endpoint, bounded for each tenant by itself.

No tenant's entries make room for another's, however many models it names: what one tenant does changes nothing for
another. Whether something that other tenants know counts is decided by those who read.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

__all__ = ["PerTenant"]

T = TypeVar("T")
_Key = tuple[str, str]

#: Tenants of which something is kept; the one used longest ago goes first.
_MOST_TENANTS = 1024
_NOBODY: Mapping[str, Any] = {}


class PerTenant(Generic[T]):
    """At most `most` endpoints and models for each tenant; the one used longest ago goes first."""

    __slots__ = ("_by_model", "_by_tenant", "_most")

    def __init__(self, most: int) -> None:
        self._most = most
        self._by_model: dict[_Key, dict[str, T]] = {}
        self._by_tenant: OrderedDict[str, OrderedDict[_Key, None]] = OrderedDict()

    @property
    def size(self) -> int:
        """Of how many models at endpoints something is known."""
        return len(self._by_model)

    def known(self, endpoint: str, model: str) -> Mapping[str, T]:
        """Return what is known of a model, by tenant."""
        return self._by_model.get((endpoint, model), _NOBODY)

    def put(self, endpoint: str, model: str, tenant: str, value: T) -> None:
        """Keep a value, as the one used last; what is beyond the bounds is forgotten."""
        key = (endpoint, model)
        held = self._by_model.setdefault(key, {})
        is_new = tenant not in held
        held[tenant] = value
        if is_new:
            self._by_tenant.setdefault(tenant, OrderedDict())[key] = None
        self._use(key, tenant)
        if is_new:
            self._trim(tenant)

    def touch(self, endpoint: str, model: str, tenant: str) -> None:
        """Count an entry as the one used last."""
        key = (endpoint, model)
        if tenant in self._by_model.get(key, ()):
            self._use(key, tenant)

    def _use(self, key: _Key, tenant: str) -> None:
        self._by_tenant[tenant].move_to_end(key)
        self._by_tenant.move_to_end(tenant)

    def _trim(self, tenant: str) -> None:
        """Forget what is beyond the bounds now that a tenant has one entry more."""
        while len(self._by_tenant[tenant]) > self._most:
            self.remove(*next(iter(self._by_tenant[tenant])), tenant)
        while len(self._by_tenant) > _MOST_TENANTS:
            oldest = next(iter(self._by_tenant))
            for key in tuple(self._by_tenant[oldest]):
                self.remove(*key, oldest)

    def remove(self, endpoint: str, model: str, tenant: str) -> None:
        """Forget an entry."""
        held = self._by_model.get((endpoint, model), {})
        held.pop(tenant, None)
        if not held:
            self._by_model.pop((endpoint, model), None)
        keys = self._by_tenant.get(tenant)
        if keys is not None:
            keys.pop((endpoint, model), None)
            if not keys:
                del self._by_tenant[tenant]

    def clear(self) -> None:
        """Forget everything."""
        self._by_model.clear()
        self._by_tenant.clear()

    def __iter__(self) -> Iterator[tuple[str, str, str, T]]:
        """Yield endpoint, model, tenant and value, for each tenant the one used last at the end."""
        for tenant, keys in self._by_tenant.items():
            for endpoint, model in keys:
                yield endpoint, model, tenant, self._by_model[(endpoint, model)][tenant]
