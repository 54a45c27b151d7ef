/**
 * The rooms of the tree and the one direction of their imports: a file may import from its own room
 * and from those listed above it. An entry is a folder without its subfolders, or a single file.
 */
export const rooms = {
  shared: ["shared", "shared/wire", "shared/config", "shared/process"],
  clients: [
    "clients/typescript/src/generated.ts",
    "clients/typescript/src",
    "clients/mcp",
    "clients/cli",
    "clients/console/model",
    "clients/console/service",
    "clients/console/parts",
    "clients/console/views",
    "clients/console",
  ],
  agent: [
    "agent/waiting.ts",
    "agent/host",
    "agent/python",
    "agent/sandbox",
    "agent/engine",
    "agent/backends",
    "agent/client",
    "agent/images",
    "agent/packages",
    "agent/work",
    "agent/builds",
    "agent",
  ],
  api: [
    "api/errors.ts",
    "api/version.ts",
    "api/ids.ts",
    "api/jobs/environment.ts",
    "api/jobs/rules.ts",
    "api/agents/placement.ts",
    "api/files/rules.ts",
    "api/webhooks/rules.ts",
    "api/store/job-tables.ts",
    "api/store/schema.ts",
    "api/store",
    "api/deps.ts",
    "api/tenants/sql.ts",
    "api/store/retention.ts",
    "api/files/sql.ts",
    "api/webhooks/sql.ts",
    "api/jobs/output.ts",
    "api/jobs/sql.ts",
    "api/jobs/lease.ts",
    "api/agents/agents.ts",
    "api/sessions/sql.ts",
    "api/images/sql.ts",
    "api/jobs/read.ts",
    "api/jobs/wait.ts",
    "api/tenants/tenants.ts",
    "api/files/files.ts",
    "api/jobs/submit.ts",
    "api/agents/claim.ts",
    "api/agents/posts.ts",
    "api/sessions/lease.ts",
    "api/events/follow.ts",
    "api/http",
    "api/monitoring",
    "api/agents/hosts.ts",
    "api/tenants",
    "api/jobs/tool-calls.ts",
    "api/images/builds.ts",
    "api/agents",
    "api/webhooks",
    "api/events",
    "api/jobs",
    "api/files",
    "api/images",
    "api/sessions",
    "api/facades",
    "api/platform",
    "api",
  ],
} satisfies Record<string, readonly string[]>;

/** The files that may import from rooms of another top folder than `shared/`. */
export const bridges: Readonly<Record<string, readonly string[]>> = {
  // The command serves the same tools on stdin; they speak the public interface only, through a function that they get.
  "api/facades/mcp.ts": ["clients/typescript/src", "clients/mcp"],
};

/** The most lines that a file may have. Tests include what only tests use. */
export const maxLines = { source: 700, test: 1000 };

/** Files that a script writes, which may have more. */
export const generated: readonly string[] = ["clients/python/src/airlock/types.py"];
