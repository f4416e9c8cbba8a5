"""Topics of a Kafka cluster: observe, create, configure, delete. All but `TopicKeeper` block.

Every failure to reach Kafka is KafkaUnavailable; TopicRefused, a kind of it, concerns one topic and
stops no order for another. "Exists already" and "does not exist" are success: the reconciler that
gives the orders repeats them after a crash.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

import confluent_kafka.admin
import structlog
from confluent_kafka import KafkaError, KafkaException

from standpipe.adapters.kafka import topic_ids
from standpipe.adapters.kafka.connection import Kafka, connection_of
from standpipe.adapters.kafka.refusals import KafkaAccessDenied, LoginWatch, refused
from standpipe.config.kafka import MIN_INSYNC_REPLICAS, PROCESSING_LOG_RETENTION
from standpipe.config.kafka import REPLICATION_FACTOR as REPLICAS_KEY
from standpipe.config.registry import Config
from standpipe.control.metadata.catalog import Catalog
from standpipe.control.metadata.order_retries import OrderRetries
from standpipe.control.metadata.topic_reconciler import (
    LOG_RETENTION_MS,
    AwaitTopic,
    ConfigureTopic,
    CreateTopic,
    DeleteTopic,
    ForgetTopic,
    KafkaOrder,
    ObservedTopic,
    Order,
    RecordTopic,
    ReportTopic,
    topic_orders,
    topics_to_observe,
)
from standpipe.errors import KafkaUnavailable

#: Its type hints are partial and its names not re-exported; what leaves this module is typed.
_kafka: Any = confluent_kafka.admin

_log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

REPLICATION_FACTOR: Final = 3  # of topics, where there are as many brokers and no key says more
TIMEOUT_S: Final = 3.0  # of one call; a broker on the same network answers in milliseconds
#: rounds in a row that found no Kafka, until another client looks for it
SILENCES_MAX: Final = 3
ROUNDS_MAX: Final = 50  # of reconciling: a deletion takes a while to be seen everywhere
ROUND_PAUSE_S: Final = 0.05
LEFT_MAX: Final = 100  # topics that were not deleted, kept for the statements that wait
VALIDITY_S_MAX: Final = 10.0  # for asking a majority whether an order is still valid
_EXISTS: Final = frozenset({KafkaError.TOPIC_ALREADY_EXISTS})
_ABSENT: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART})


#: errors of a request that Kafka did not answer, so that the next one would wait, too
_SILENT: Final = frozenset(
    {
        *(KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN),
        *(KafkaError._RESOLVE, KafkaError._DESTROY, KafkaError.REQUEST_TIMED_OUT),
    }
)


@dataclass(frozen=True, kw_only=True)
class TopicPolicy:
    """How topics are made. 0: what `replicas` derives from the number of brokers."""

    replication_factor: int = 0
    min_insync_replicas: int = 0
    log_retention_ms: int = LOG_RETENTION_MS

    @classmethod
    def of(cls, config: Config) -> TopicPolicy:
        """What the keys say."""
        return cls(
            replication_factor=config[REPLICAS_KEY],
            min_insync_replicas=config[MIN_INSYNC_REPLICAS],
            log_retention_ms=config[PROCESSING_LOG_RETENTION],
        )

    def replicas(self, brokers: int) -> tuple[int, int]:
        """(replicas of a new topic, how many of them must have a record)."""
        replicas = self.replication_factor or max(1, min(REPLICATION_FACTOR, brokers))
        return replicas, self.min_insync_replicas or max(1, replicas - 1)


class TopicRefused(KafkaUnavailable):
    """Kafka, or its client, refuses what was asked of one topic; other topics may be fine."""


@dataclass(frozen=True)
class ReconcileOutcome:
    """The result of a round of reconciling. Without any failure, Kafka is as the catalog wants it,
    once what `records` and `gone` say is logged."""

    #: why no topic could be looked at, or no further one
    unreachable: str = ""
    #: topic -> why it is not as the catalog wants it
    failures: Mapping[str, str] = field(default_factory=dict[str, str])
    #: topic -> what RecordTopics must say of it
    records: Mapping[str, str] = field(default_factory=dict[str, str])
    #: doomed topics that are settled -> why they were left alone ("": gone); TopicDeleted must be
    #: written to the log for each
    gone: Mapping[str, str] = field(default_factory=dict[str, str])
    #: differences that no order can fix
    reports: tuple[str, ...] = ()

    @property
    def is_settled(self) -> bool:
        """Whether nothing has to be logged before the next orders can follow."""
        return not self.records and not self.gone

    @property
    def faults(self) -> tuple[str, ...]:
        """All failures, for people."""
        of_topics = (f"topic {name}: {why}" for name, why in sorted(self.failures.items()))
        return (*([self.unreachable] if self.unreachable else []), *of_topics)


class KafkaAdmin:
    """One admin client. Connects when it is first used. `policy`: of the topics that it makes."""

    def __init__(self, kafka: Kafka, policy: TopicPolicy = TopicPolicy()) -> None:
        self._policy, self._has_said = policy, False
        self._kafka = connection_of(kafka)
        self._client: Any = None
        self._silences = 0
        self._logins = LoginWatch(kafka)

    def partition_counts(self) -> dict[str, int]:
        """All topics and their partition counts. Raises KafkaUnavailable."""
        return {
            name: len(topic.partitions)
            for name, topic in self._metadata().topics.items()
            if topic.error is None
        }

    def observe(self, names: Iterable[str]) -> dict[str, ObservedTopic]:
        """Those of the topics that exist, with their configuration and Kafka's ids of them.

        Raises KafkaUnavailable. What is not known of one topic is `ObservedTopic.fault`.
        """
        counts = self.partition_counts()
        there = [name for name in dict.fromkeys(names) if name in counts]
        configs, faults = self._configs(there)
        seen, unseen = topic_ids.ask_each(self._admin(), there, TIMEOUT_S, self._kafka)
        faults.update(unseen)
        return {
            name: ObservedTopic(
                partitions=counts[name],
                config=configs.get(name, {}),
                topic_id=seen[name].topic_id if name in seen else None,
                fault=faults.get(name, ""),
            )
            for name in there
        }

    def reconcile(
        self,
        catalog: Catalog,
        service_id: str,
        stands: Callable[[KafkaOrder], bool],
        retries: OrderRetries | None = None,
    ) -> ReconcileOutcome:
        """Observe and carry out orders until none is due, or Kafka does not answer. At most
        ROUNDS_MAX rounds. An order that fails is due again later, and holds up no other.

        `stands` is called before each order (`control.metadata.topic_reconciler.is_still_valid`).
        """
        retries = OrderRetries() if retries is None else retries
        names = topics_to_observe(catalog, service_id)
        orders: list[Order] = []
        for _ in range(ROUNDS_MAX):
            try:
                observed = self.observe(names)
                orders = topic_orders(
                    catalog,
                    observed,
                    service_id,
                    log_retention_ms=self._policy.log_retention_ms,
                )
                wanted = [order for order in orders if isinstance(order, KafkaOrder)]
                due = retries.due(wanted, _now_ms())
                for order in due:
                    if not stands(order):
                        why = "another leader or a newer statement decides"
                        return ReconcileOutcome(failures={**retries.failures, order.name: why})
                    retries.note(order, self._try(order), _now_ms())
            except KafkaUnavailable as error:
                self._note_silence()
                return ReconcileOutcome(error.message, retries.failures)
            self._silences = 0
            outcome = _outcome(orders, observed, retries.failures)
            awaits = any(isinstance(order, AwaitTopic) for order in orders)
            if not (due or awaits) or not outcome.is_settled:
                return outcome
            time.sleep(ROUND_PAUSE_S)
        unseen = (one.name for one in orders if isinstance(one, KafkaOrder | AwaitTopic))
        why = "Kafka accepted the change but has not applied it, or does not show it to "
        slow = dict.fromkeys(unseen, f"{why}{self._kafka.principal}, who may lack Describe")
        return ReconcileOutcome(failures={**slow, **retries.failures})

    def _note_silence(self) -> None:
        """A client may not find its brokers again: one did not for 110 s after the only broker had
        stood still, while others did at once. A new one asks the bootstrap servers."""
        self._silences += 1
        if self._silences >= SILENCES_MAX:
            self._client, self._silences = None, 0

    def _try(self, order: KafkaOrder) -> str:
        """Carry out one order and return why Kafka refuses it, if it does. Raises KafkaUnavailable
        if Kafka does not answer: the next order would wait as long."""
        _log.info("topic order", order=str(order))
        try:
            self.carry_out(order)
        except (TopicRefused, KafkaAccessDenied) as refusal:
            return refusal.message
        return ""

    def carry_out(self, order: KafkaOrder) -> None:
        """Carry out one order. Raises KafkaUnavailable, or TopicRefused if Kafka answers with an
        error."""
        try:
            self._carry_out(order)
        except (KafkaException, ValueError, TypeError, OverflowError) as error:  # of arguments
            raise TopicRefused(f"Kafka's client: {error}") from error

    def _carry_out(self, order: KafkaOrder) -> None:
        match order:
            case CreateTopic():
                brokers = len(self._metadata().brokers)
                replicas, min_insync = self._policy.replicas(brokers)
                self._say_what_is_at_risk(brokers, replicas, min_insync)
                new = _kafka.NewTopic(
                    order.name,
                    num_partitions=order.partitions,
                    replication_factor=replicas,
                    config={**order.config, "min.insync.replicas": str(min_insync)},
                )
                asked = self._admin().create_topics([new], **_timeouts())
                self._wait(asked, "Create", order.name, _EXISTS)
            case ConfigureTopic():
                resource = _resource(order.name, order.config)
                asked = self._admin().incremental_alter_configs([resource], **_timeouts())
                self._wait(asked, "AlterConfigs", order.name)
            case DeleteTopic():
                asked = self._admin().delete_topics([order.name], **_timeouts())
                self._wait(asked, "Delete", order.name, _ABSENT)

    def _say_what_is_at_risk(self, brokers: int, replicas: int, min_insync: int) -> None:
        if (replicas < REPLICATION_FACTOR or min_insync < 2) and not self._has_said:
            self._has_said = True
            _log.warning(
                "a broker that is lost may take acknowledged records with it",
                brokers=brokers,
                replicas=replicas,
                min_insync_replicas=min_insync,
                better=f"{REPLICATION_FACTOR} replicas and 2 in sync, on as many brokers",
            )

    def _configs(self, names: Sequence[str]) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
        """Configurations by topic; and by topic, why there is none. Raises KafkaUnavailable."""
        if not names:
            return {}, {}
        asked = [_kafka.ConfigResource(_kafka.ResourceType.TOPIC, name) for name in names]
        answers = self._admin().describe_configs(asked, **_timeouts())
        configs: dict[str, dict[str, str]] = {}
        faults: dict[str, str] = {}
        for resource, answer in answers.items():
            try:
                entries: dict[str, Any] = (
                    self._result(answer, "DescribeConfigs", resource.name, _ABSENT) or {}
                )
            except (TopicRefused, KafkaAccessDenied) as refusal:
                faults[resource.name] = refusal.message
                continue
            configs[resource.name] = {key: str(entry.value) for key, entry in entries.items()}
        return configs, faults

    def _metadata(self) -> Any:
        """All topics at once: asking for one by name could make the broker create it."""
        try:
            return self._admin().list_topics(timeout=TIMEOUT_S)
        except KafkaException as error:
            self._admin().poll(0)  # what the brokers have said since
            raise KafkaUnavailable(_text(error) + self._logins.take()) from error

    def _wait(
        self,
        answers: Mapping[Any, Any],
        operation: str,
        topic: str,
        accepted: frozenset[int] = frozenset(),
    ) -> None:
        for answer in answers.values():
            self._result(answer, operation, topic, accepted)

    def _result(
        self, answer: Any, operation: str, topic: str, accepted: frozenset[int] = frozenset()
    ) -> Any:
        try:
            return answer.result(timeout=TIMEOUT_S * 2)
        except KafkaException as error:
            if error.args[0].code() in accepted:
                return None
            raise refused(self._kafka, error, operation, topic) or _failed(error) from error
        except TimeoutError as error:
            raise KafkaUnavailable("Kafka does not answer") from error

    def _admin(self) -> Any:
        if self._client is None:
            self._client = _kafka.AdminClient(
                {
                    **self._kafka.librdkafka(),
                    "socket.timeout.ms": int(TIMEOUT_S * 1000),
                    "reconnect.backoff.max.ms": 500,
                    "error_cb": self._logins,
                    "log_level": 2,  # it would report each failed connection; callers do
                }
            )
        self._client.poll(0)  # serves error_cb
        return self._client


class TopicKeeper:
    """Keeps topics as catalogs want them, off the loop, and lets callers wait for it.

    It has its own thread: asyncio would wait for those of its pool when the process ends.
    """

    def __init__(self, kafka: Kafka, service_id: str, policy: TopicPolicy = TopicPolicy()) -> None:
        self.admin = KafkaAdmin(kafka, policy) if connection_of(kafka).bootstrap_servers else None
        self._service_id = service_id
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="topics")
        self._retries = OrderRetries()
        self._index = 0  # log index up to which topics were reconciled
        self._outcome = ReconcileOutcome()
        #: topic -> why it was not deleted, newest last, at most LEFT_MAX
        self._left: dict[str, str] = {}
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
        self._report(outcome)
        if outcome.is_settled:
            self._index = catalog.index
        self._looked_after.set()
        self._looked_after = asyncio.Event()
        return outcome

    def _report(self, outcome: ReconcileOutcome) -> None:
        if outcome.reports and outcome.reports != self._outcome.reports:
            _log.error("topics differ from their statements", reports=outcome.reports)
        if self.admin and outcome.faults and outcome.faults != self._outcome.faults:
            _log.error("topics are not as statements want them", faults=outcome.faults)
        for name, why in outcome.gone.items():
            self._left.pop(name, None)
            if why:
                _log.warning("topic not deleted", topic=name, why=why)
                self._left[name] = f"it was not deleted: {why}"
        for name in list(self._left)[:-LEFT_MAX]:
            del self._left[name]
        self._outcome = outcome

    async def followed(
        self, index: int, names: Collection[str] | None, timeout_s: float
    ) -> Mapping[str, str]:
        """Wait for a round that includes `index` and left nothing to log. Returns for which of
        these topics (None: all) Kafka is not as the catalog wants it, and why; "" stands for Kafka
        as a whole."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._index < index:
                    await self._looked_after.wait()
                return self._failures(names)
        return {"": f"Kafka takes more than {timeout_s:g} s"}

    def _failures(self, names: Collection[str] | None) -> Mapping[str, str]:
        if self._outcome.unreachable:
            return {"": self._outcome.unreachable}
        known = {**(self._left if names is not None else {}), **self._outcome.failures}
        return {name: why for name, why in known.items() if names is None or name in names}

    def _reconcile(
        self, catalog: Catalog, stands: Callable[[KafkaOrder], bool]
    ) -> ReconcileOutcome:
        if self.admin is None:
            return ReconcileOutcome("no Kafka is configured")
        return self.admin.reconcile(catalog, self._service_id, stands, self._retries)


def _outcome(
    orders: Sequence[Order],
    observed: Mapping[str, ObservedTopic],
    failures: Mapping[str, str],
) -> ReconcileOutcome:
    faults = {name: topic.fault for name, topic in observed.items() if topic.fault}
    reports = (order for order in orders if isinstance(order, ReportTopic))
    return ReconcileOutcome(
        failures={**faults, **failures},
        records={order.name: order.topic_id for order in orders if isinstance(order, RecordTopic)},
        gone={order.name: order.left for order in orders if isinstance(order, ForgetTopic)},
        reports=tuple(f"topic {order.name}: {order.why}" for order in reports),
    )


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _timeouts() -> dict[str, float]:
    return {"request_timeout": TIMEOUT_S}


def _resource(name: str, config: Mapping[str, str]) -> Any:
    entries = [
        _kafka.ConfigEntry(key, value, incremental_operation=_kafka.AlterConfigOpType.SET)
        for key, value in config.items()
    ]
    return _kafka.ConfigResource(_kafka.ResourceType.TOPIC, name, incremental_configs=entries)


def _failed(error: KafkaException) -> KafkaUnavailable:
    """TopicRefused, unless Kafka did not answer at all."""
    is_silent = error.args[0].code() in _SILENT
    return KafkaUnavailable(_text(error)) if is_silent else TopicRefused(_text(error))


def _text(error: KafkaException) -> str:
    cause = error.args[0]
    return f"Kafka: {cause.str() if hasattr(cause, 'str') else cause}"
