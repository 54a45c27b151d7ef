/** The tables, as the migrations in api/store/migrations make them; their triggers stand only there. */
export * from "./schema/agents.ts";
export * from "./schema/builds.ts";
export * from "./schema/executions.ts";
export * from "./schema/history.ts";
export * from "./schema/rate-windows.ts";
