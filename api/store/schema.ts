/** The tables that the migrations in api/store/migrations make. The triggers are only in the migrations. */
export * from "./schema/agents.ts";
export * from "./schema/batches.ts";
export * from "./schema/builds.ts";
export * from "./schema/executions.ts";
export * from "./schema/payloads.ts";
export * from "./schema/files.ts";
export * from "./schema/history.ts";
export * from "./schema/queue.ts";
export * from "./schema/rate-windows.ts";
export * from "./schema/sessions.ts";
export * from "./schema/settings.ts";
export * from "./schema/tenants.ts";
export * from "./schema/webhooks.ts";
