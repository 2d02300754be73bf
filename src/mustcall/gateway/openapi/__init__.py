"""The gateway's API as an OpenAPI document: shapes of bodies, headers, routes."""
