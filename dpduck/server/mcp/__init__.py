"""MCP server: the tools with which agents ask, and its two transports. Only the transports need the package mcp."""
