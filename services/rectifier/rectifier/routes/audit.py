"""POST /audit: judge one message, keep no state."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Body, Request
from fastapi.responses import Response

from rectifier.audit import Audit
from rectifier.case import Case
from rectifier.checks.schema import check_schema_document
from rectifier.examples import AUDIT_EXAMPLES
from rectifier.hang_up import until_hang_up
from rectifier.parts import Parts, PartsOf
from rectifier.policy import Policy, resolve
from rectifier.problems import documented
from rectifier.rectify import AUDIT
from rectifier.wire import AuditRequest, StrictRoute
from rectifier_core.deadline import Deadline
from rectifier_core.errors import InputError

router = APIRouter(tags=["audit"], route_class=StrictRoute)


@router.post(
    "/audit",
    response_model=Audit,
    responses=documented(400, 404, 408, 413, 415, 422, 503, 504),
)
async def audit(
    body: Annotated[AuditRequest, Body(openapi_examples=AUDIT_EXAMPLES)],
    request: Request,
    parts: PartsOf,
) -> Response:
    """Judge one message against the indicators that fit it. Nothing is kept."""
    deadline = Deadline.after(body.deadline_ms / 1000)
    found = await until_hang_up(
        request, parts.auditor.audit(case_of(body, parts), deadline=deadline)
    )
    parts.metrics.audit(found)
    return Response(AUDIT.dump_json(found), media_type="application/json")


def case_of(body: AuditRequest, parts: Parts) -> Case:
    """Return what the request asks to be audited, with its effective policy.

    Raises:
        InputError: A pool that does not exist, a policy or schema that does not make sense.
    """
    pools = body.pools() or parts.default_pools or None
    for name in pools or ():
        if name not in parts.live.known_pools():
            raise InputError(f"there is no pool {name!r}", field="pool")
    if body.message_schema is not None:
        check_schema_document(body.message_schema)
    return Case(
        task=body.task,
        message=body.message.message(),
        policy=_policy(body, parts, pools),
        context=body.context_texts(),
        message_schema=body.message_schema,
        pools=pools,
        shadow_pools=parts.configuration.shadow_pools,
    )


def _policy(body: AuditRequest, parts: Parts, pools: Sequence[str] | None) -> Policy:
    configured = parts.configuration
    defaults = configured.pools.get(pools[0]) if pools and len(pools) == 1 else None
    if isinstance(body.policy, str) and body.policy not in configured.presets:
        raise InputError(f"there is no preset {body.policy!r}", field="policy")
    policy = resolve(
        body.requested_policy(),
        default=parts.preset,
        presets=configured.presets,
        pool_defaults=defaults,
    )
    if policy.audit != "none" and parts.judge_model is None:
        detail = "no judge endpoint is configured: only the preset checks can be asked for"
        raise InputError(detail, field="policy")
    return policy
