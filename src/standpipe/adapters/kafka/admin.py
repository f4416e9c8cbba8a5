"""Topics of a Kafka cluster: observe, create, configure, delete. All but `TopicKeeper` block.

Every failure to reach Kafka is KafkaUnavailable. "Exists already" and "does not exist" are success:
the reconciler that gives the orders repeats them after a crash.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import confluent_kafka.admin
import structlog
from confluent_kafka import KafkaError, KafkaException

from standpipe.control.metadata.catalog import Catalog
from standpipe.control.metadata.topic_reconciler import (
    ConfigureTopic,
    CreateTopic,
    DeleteTopic,
    ForgetTopic,
    KafkaOrder,
    ObservedTopic,
    ReportTopic,
    topic_orders,
    topics_to_observe,
)
from standpipe.errors import KafkaUnavailable

#: Its type hints are partial and its names not re-exported; what leaves this module is typed.
_kafka: Any = confluent_kafka.admin

_log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

REPLICATION_MAX: Final = 3
TIMEOUT_S: Final = 3.0  # of one call; a broker on the same network answers in milliseconds
ROUNDS_MAX: Final = 50  # of reconciling: a deletion takes a while to be seen everywhere
ROUND_PAUSE_S: Final = 0.05
VALIDITY_S_MAX: Final = 10.0  # for asking a majority whether an order is still valid
_EXISTS: Final = frozenset({KafkaError.TOPIC_ALREADY_EXISTS})
_ABSENT: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART})


@dataclass(frozen=True)
class ReconcileOutcome:
    """The result of a round of reconciling. `failure` empty: Kafka is as the catalog wants it."""

    failure: str = ""
    #: doomed topics that are gone now; TopicDeleted must be written to the log
    gone: tuple[str, ...] = ()
    #: differences that no order can fix
    reports: tuple[str, ...] = ()


class KafkaAdmin:
    """One admin client. Connects when it is first used."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._client: Any = None

    def partition_counts(self) -> dict[str, int]:
        """All topics and their partition counts. Raises KafkaUnavailable."""
        return {
            name: len(topic.partitions)
            for name, topic in self._metadata().topics.items()
            if topic.error is None
        }

    def observe(self, names: Iterable[str]) -> dict[str, ObservedTopic]:
        """Those of the topics that exist, with their configuration. Raises KafkaUnavailable."""
        counts = self.partition_counts()
        there = [name for name in names if name in counts]
        configs = self._configs(there)
        return {name: ObservedTopic(counts[name], configs.get(name, {})) for name in there}

    def reconcile(
        self, catalog: Catalog, service_id: str, stands: Callable[[KafkaOrder], bool]
    ) -> ReconcileOutcome:
        """Observe and carry out orders until none is left, or one fails. At most ROUNDS_MAX rounds.

        `stands` is called before each order (`control.metadata.topic_reconciler.is_still_valid`).
        """
        names = topics_to_observe(catalog, service_id)
        for _ in range(ROUNDS_MAX):
            try:
                orders = topic_orders(catalog, self.observe(names), service_id)
            except KafkaUnavailable as error:
                return ReconcileOutcome(failure=error.message)
            asked = [order for order in orders if isinstance(order, KafkaOrder)]
            failures = [failure for one in asked if (failure := self._try(one, stands))]
            if failures or not asked:
                return ReconcileOutcome(
                    failure="; ".join(failures),
                    gone=tuple(order.name for order in orders if isinstance(order, ForgetTopic)),
                    reports=tuple(
                        f"topic {order.name}: {order.why}"
                        for order in orders
                        if isinstance(order, ReportTopic)
                    ),
                )
            time.sleep(ROUND_PAUSE_S)
        return ReconcileOutcome(failure="Kafka accepted the changes but has not applied them")

    def _try(self, order: KafkaOrder, stands: Callable[[KafkaOrder], bool]) -> str:
        """Carry out one order and return its failure, if any: it does not stop the others."""
        if not stands(order):
            return f"topic {order.name}: another leader or a newer statement decides"
        _log.info("topic order", order=str(order))
        try:
            self.carry_out(order)
        except KafkaUnavailable as error:
            return f"topic {order.name}: {error.message}"
        return ""

    def carry_out(self, order: KafkaOrder) -> None:
        """Carry out one order. Raises KafkaUnavailable."""
        match order:
            case CreateTopic():
                new = _kafka.NewTopic(
                    order.name,
                    num_partitions=order.partitions,
                    replication_factor=min(REPLICATION_MAX, len(self._metadata().brokers)),
                    config=dict(order.config),
                )
                self._wait(self._admin().create_topics([new], **_timeouts()), _EXISTS)
            case ConfigureTopic():
                resource = _resource(order.name, order.config)
                self._wait(self._admin().incremental_alter_configs([resource], **_timeouts()))
            case DeleteTopic():
                self._wait(self._admin().delete_topics([order.name], **_timeouts()), _ABSENT)

    def _configs(self, names: list[str]) -> dict[str, dict[str, str]]:
        if not names:
            return {}
        asked = [_kafka.ConfigResource(_kafka.ResourceType.TOPIC, name) for name in names]
        answers = self._admin().describe_configs(asked, **_timeouts())
        found = {resource.name: self._result(answer) for resource, answer in answers.items()}
        return {
            name: {key: str(entry.value) for key, entry in entries.items()}
            for name, entries in found.items()
        }

    def _metadata(self) -> Any:
        """All topics at once: asking for one by name could make the broker create it."""
        try:
            return self._admin().list_topics(timeout=TIMEOUT_S)
        except KafkaException as error:
            raise _unavailable(error) from error

    def _wait(self, answers: Mapping[Any, Any], accepted: frozenset[int] = frozenset()) -> None:
        for answer in answers.values():
            self._result(answer, accepted)

    def _result(self, answer: Any, accepted: frozenset[int] = frozenset()) -> Any:
        try:
            return answer.result(timeout=TIMEOUT_S * 2)
        except KafkaException as error:
            if error.args[0].code() in accepted:
                return None
            raise _unavailable(error) from error
        except TimeoutError as error:
            raise KafkaUnavailable("Kafka does not answer") from error

    def _admin(self) -> Any:
        if self._client is None:
            self._client = _kafka.AdminClient(
                {
                    "bootstrap.servers": self._bootstrap_servers,
                    "socket.timeout.ms": int(TIMEOUT_S * 1000),
                    "reconnect.backoff.max.ms": 500,
                    "log_level": 2,  # it would report each failed connection; callers do
                }
            )
        return self._client


class TopicKeeper:
    """Keeps topics as catalogs want them, off the loop, and lets callers wait for it.

    It has its own thread: asyncio would wait for those of its pool when the process ends.
    """

    def __init__(self, bootstrap_servers: str, service_id: str) -> None:
        self.admin = KafkaAdmin(bootstrap_servers) if bootstrap_servers else None
        self._service_id = service_id
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="topics")
        self._index = 0  # log index up to which topics were reconciled
        self._outcome = ReconcileOutcome()
        self._looked_after = asyncio.Event()

    async def reconcile_topics(
        self,
        catalog: Catalog,
        stands: Callable[[KafkaOrder, Catalog], Coroutine[Any, Any, bool]],
    ) -> ReconcileOutcome:
        """One round for the newest catalog; `stands` is called on the loop before each order."""
        loop = asyncio.get_running_loop()

        def ask(order: KafkaOrder) -> bool:
            asked = asyncio.run_coroutine_threadsafe(stands(order, catalog), loop)
            with contextlib.suppress(TimeoutError):
                return asked.result(VALIDITY_S_MAX)
            return False

        outcome = await loop.run_in_executor(self._threads, self._reconcile, catalog, ask)
        if outcome.reports and outcome.reports != self._outcome.reports:
            _log.error("topics differ from their statements", reports=outcome.reports)
        self._index, self._outcome = catalog.index, outcome
        self._looked_after.set()
        self._looked_after = asyncio.Event()
        return outcome

    async def followed(self, index: int, timeout_s: float) -> str:
        """Wait for a round that includes `index`, and return its failure; empty: none."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._index < index:
                    await self._looked_after.wait()
                return self._outcome.failure
        return f"Kafka takes more than {timeout_s:g} s"

    def _reconcile(
        self, catalog: Catalog, stands: Callable[[KafkaOrder], bool]
    ) -> ReconcileOutcome:
        if self.admin is None:
            return ReconcileOutcome(failure="no Kafka is configured")
        return self.admin.reconcile(catalog, self._service_id, stands)


def _timeouts() -> dict[str, float]:
    return {"request_timeout": TIMEOUT_S}


def _resource(name: str, config: Mapping[str, str]) -> Any:
    entries = [
        _kafka.ConfigEntry(key, value, incremental_operation=_kafka.AlterConfigOpType.SET)
        for key, value in config.items()
    ]
    return _kafka.ConfigResource(_kafka.ResourceType.TOPIC, name, incremental_configs=entries)


def _unavailable(error: KafkaException) -> KafkaUnavailable:
    cause = error.args[0]
    return KafkaUnavailable(f"Kafka: {cause.str() if hasattr(cause, 'str') else cause}")
