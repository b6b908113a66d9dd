"""The engine's API as its callers see it: routes, the forms of answers, the OpenAPI document. No HTTP, no engine."""
