"""The description of the service's routes, in OpenAPI's format."""

import typing
from typing import Any, Callable, Dict, List, Mapping, Optional

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import models_json_schema

from engine.version import VERSION
from serving.routes import REQUESTS


class Error(BaseModel):
    """Why there is no answer; `index` is the number of the text at fault, from 0."""
    error: str
    error_type: str
    index: Optional[int] = None


def description_of(prefixes: List[str], gets: Mapping[str, Callable]) -> Dict[str, Any]:
    """The description of all routes.

    Args:
        prefixes: of all routes.
        gets: the other routes, with functions whose texts describe them.
    """
    schemas, components = models_json_schema(
        [(body, "validation") for body in (*REQUESTS.values(), Error)],
        ref_template="#/components/schemas/{model}")

    def content(what: str, schema: Dict[str, Any]) -> Dict[str, Any]:
        return {"description": what, "content": {"application/json": {"schema": schema}}}

    paths: Dict[str, Any] = {}
    for route, request in REQUESTS.items():
        answer = TypeAdapter(typing.get_type_hints(request.answer)["return"]).json_schema()
        paths[route] = {"post": {
            "summary": " ".join(request.__doc__.split()),
            "requestBody": content("the request", schemas[request, "validation"]),
            "responses": {"200": content("the answer", answer),
                          "default": content("an error", schemas[Error, "validation"])}}}
    for route, function in gets.items():
        paths[route] = {"get": {"summary": function.__doc__,
                                "responses": {"200": {"description": "the answer"}}}}
    return {"openapi": "3.1.0", "info": {"title": "Trained BERT models", "version": VERSION},
            "paths": {prefix + route: path for prefix in prefixes for route, path in paths.items()},
            "components": {"schemas": components["$defs"]}}
