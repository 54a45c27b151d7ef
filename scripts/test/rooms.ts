/**
 * The rooms of the tree and the one direction of their imports: a file may import from its own room
 * and from those listed above it. An entry is a folder without its subfolders, or a single file.
 */
export const rooms = {
  shared: [
    "shared",
    "shared/wire",
    "shared/wire/agent",
    "shared/wire/client",
    "shared/config",
    "shared/process",
  ],
  clients: [
    "clients/typescript/src",
    "clients/mcp/api.ts",
    "clients/mcp/tools",
    "clients/mcp",
    "clients/cli/src",
    "clients/cli/src/files",
    "clients/cli/src/jobs",
    "clients/cli/src/commands",
    "clients/cli",
    "clients/console/model",
    "clients/console/service",
    "clients/console/parts",
    "clients/console/panels",
    "clients/console/views",
    "clients/console",
  ],
  agent: [
    "agent/waiting",
    "agent/policy",
    "agent/sandbox",
    "agent/sandbox/filter",
    "agent/sandbox/protocol",
    "agent/sandbox/output",
    "agent/packages",
    "agent/sandbox/session",
    "agent/container",
    "agent/mother",
    "agent/health",
    "agent/api",
    "agent/files",
    "agent/image",
    "agent/pool",
    "agent/lease",
    "agent/build",
    "agent/job",
    "agent",
  ],
  api: [
    "api/errors.ts",
    "api/hash.ts",
    "api/version.ts",
    "api/domain",
    "api/domain/files",
    "api/domain/agents",
    "api/domain/webhooks",
    "api/store/schema",
    "api/store",
    "api/store/agents",
    "api/store/output",
    "api/store/jobs",
    "api/store/batches",
    "api/store/statistics",
    "api/store/builds",
    "api/store/webhooks",
    "api/deps.ts",
    "api/http",
    "api/http/body",
    "api/files",
    "api/jobs",
    "api/batches",
    "api/events",
    "api/builds",
    "api/agents",
    "api/webhooks",
    "api/upkeep",
    "api/metrics",
    "api/http/access",
    "api/openapi/examples",
    "api/openapi/responses",
    "api/openapi",
    "api/routes",
    "api/routes/jobs",
    "api/routes/agents",
    "api/routes/monitoring",
    "api/routes/pages",
    "api/platform/sqlite",
    "api/platform",
    "api/platform/artifacts",
    "api/platform/notifier",
    "api/platform/webhooks",
    "api",
  ],
} satisfies Record<string, readonly string[]>;

/** The files that may import from a room of another top folder than `shared/`. */
export const bridges: Readonly<Record<string, string>> = {
  // The API serves it; it speaks the public interface only, through a function that the route gives it.
  "api/routes/mcp.ts": "clients/mcp",
};

/** The most lines that a source or test may have. */
export const maxLines = 300;

/** Files that a script writes, which may have more. */
export const generated: readonly string[] = [
  "clients/python/src/airlock/types.py",
  "clients/typescript/src/generated.ts",
];
