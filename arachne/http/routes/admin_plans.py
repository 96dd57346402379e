"""Plans, for administrators: made, listed, shown, changed."""

from starlette.requests import Request
from starlette.responses import Response

from arachne import plans
from arachne.cursors import decode_cursor
from arachne.http import bodies
from arachne.http.administration import PATH as ROOT
from arachne.http.administration import act, operation, page_of
from arachne.http.answers import to_json
from arachne.http.operations import Answer, Resource
from arachne.http.parts import Parts
from arachne.schemas.admin import PlanList, PlanView
from arachne.schemas.plan import NewPlan, PlanTerms
from arachne.schemas.queries import PageQuery
from arachne.schemas.tables import Plan

PATH = f"{ROOT}/plans"
_CURSOR = "plans"


async def create(request: Request, parts: Parts) -> Response:
    """The new plan."""
    wanted = await bodies.read_model(request, NewPlan)
    view = await act(request, parts, lambda session: _view(plans.create_plan(session, wanted)))
    response = to_json(view.model_dump(mode="json"), 201)
    response.headers["Location"] = f"{parts.settings.base_url}{PATH}/{view.plan_id}"
    return response


async def show_all(request: Request, parts: Parts) -> Response:
    """The plans, by name."""
    query = bodies.read_query(request.query_params, PageQuery)
    after = decode_cursor(_CURSOR, query.cursor) or ""
    found = await act(request, parts, lambda session: plans.list_plans(session, limit=query.limit + 1, after=after))
    shown, following = page_of(_CURSOR, found, query.limit, lambda plan: plan.plan_id)
    view = PlanList(data=[_view(plan) for plan in shown], next_cursor=following)
    return to_json(view.model_dump(mode="json"))


async def show_one(request: Request, parts: Parts) -> Response:
    """The plan."""
    plan_id = request.path_params["plan_id"]
    view = await act(request, parts, lambda session: _view(plans.find_plan(session, plan_id)))
    return to_json(view.model_dump(mode="json"))


async def change(request: Request, parts: Parts) -> Response:
    """The plan, changed; members that are absent stay."""
    wanted, plan_id = await bodies.read_model(request, PlanTerms), request.path_params["plan_id"]
    view = await act(request, parts, lambda session: _view(plans.change_plan(session, plan_id, wanted)))
    return to_json(view.model_dump(mode="json"))


def _view(plan: Plan) -> PlanView:
    return PlanView.model_validate(plan.model_dump())


RESOURCES = (
    Resource(
        PATH,
        {
            "POST": operation(
                create,
                "A new plan",
                {201: Answer("The plan", PlanView, headers=("Location",))},
                body=NewPlan,
                example={
                    "plan_id": "team",
                    "currency": "EUR",
                    "price_image": "0.002",
                    "monthly_images": 100000,
                    "rates": {"vision": "60/minute"},
                },
                errors=(409,),
            ),
            "GET": operation(show_all, "Plans, by name", {200: Answer("A page of plans", PlanList)}, query=PageQuery),
        },
    ),
    Resource(
        f"{PATH}/{{plan_id}}",
        {
            "GET": operation(show_one, "One plan", {200: Answer("The plan", PlanView)}),
            "PATCH": operation(
                change,
                "Change a plan's terms, for whatever is finished from now on",
                {200: Answer("The plan", PlanView)},
                body=PlanTerms,
                example={"price_image": "0.003"},
            ),
        },
    ),
)
