"""Prometheus metrics of the service. Labels come from closed sets only."""

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from rectifier.verdict import Degraded, Reason, Verdict

if TYPE_CHECKING:
    from rectifier.audit import Audit

# Seconds; from 1 ms, because an audit without a judge call takes about that.
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
STAGES = ("checks", "keywords", "embed", "search", "rerank", "judge", "total")
DECISIONS = ("pass", "retry", "reject")
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "other")
STATUS_CLASSES = ("2xx", "3xx", "4xx", "5xx", "none")


class Metrics:
    """The series of one process, each child bound once (binding on the hot path costs four times)."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        requests = Counter(
            "rectifier_http_requests", "Requests", ["method", "status"], registry=self.registry
        )
        seconds = Histogram(
            "rectifier_http_request_seconds",
            "Time to answer",
            ["method"],
            buckets=BUCKETS,
            registry=self.registry,
        )
        verdicts = Counter(
            "rectifier_verdicts", "Audits", ["verdict", "reason"], registry=self.registry
        )
        decisions = Counter(
            "rectifier_decisions",
            "Messages gated",
            ["decision", "reason"],
            registry=self.registry,
        )
        degraded = Counter(
            "rectifier_degraded", "Audits with something missing", ["cause"], registry=self.registry
        )
        stages = Histogram(
            "rectifier_stage_seconds",
            "Time of one stage of an audit",
            ["stage"],
            buckets=BUCKETS,
            registry=self.registry,
        )
        tokens = Counter(
            "rectifier_judge_tokens", "Tokens of judge calls", ["kind"], registry=self.registry
        )
        self._calls = Counter(
            "rectifier_judge_calls", "Calls of the judge model", registry=self.registry
        )
        self.snapshot_age = Gauge(
            "rectifier_snapshot_age_seconds",
            "Since the snapshot was last known to be current",
            registry=self.registry,
        )
        self.snapshot_size = Gauge(
            "rectifier_snapshot_indicators", "Indicators in the snapshot", registry=self.registry
        )
        self._requests = {
            (method, status): requests.labels(method, status)
            for method in METHODS
            for status in STATUS_CLASSES
        }
        self._seconds = {method: seconds.labels(method) for method in METHODS}
        self._verdicts = {
            (verdict, reason): verdicts.labels(verdict, reason)
            for verdict in Verdict
            for reason in Reason
        }
        self._decisions = {
            (decision, reason): decisions.labels(decision, reason)
            for decision in DECISIONS
            for reason in Reason
        }
        self._degraded = {cause: degraded.labels(cause) for cause in Degraded}
        self._stages = {stage: stages.labels(stage) for stage in STAGES}
        self._tokens = {kind: tokens.labels(kind) for kind in ("prompt", "cached", "completion")}

    def request(self, method: str, status: int, seconds: float) -> None:
        """Count one HTTP request; status 0 where the client left before an answer."""
        known = method if method in METHODS else "other"
        status_class = f"{status // 100}xx" if status else "none"
        self._requests[known, status_class].inc()
        self._seconds[known].observe(seconds)

    def audit(self, audit: "Audit") -> None:
        """Count one audit."""
        self._verdicts[audit.verdict, audit.reason].inc()
        for cause in audit.degraded:
            self._degraded[cause].inc()
        self._calls.inc(audit.usage.calls)
        self._tokens["prompt"].inc(audit.usage.prompt_tokens)
        self._tokens["cached"].inc(audit.usage.cached_tokens)
        self._tokens["completion"].inc(audit.usage.completion_tokens)
        for stage, ms in audit.timing_ms.items():
            self._stages[stage].observe(ms / 1000)

    def decision(self, decision: str, reason: Reason) -> None:
        """Count one gated message."""
        self._decisions[decision, reason].inc()
