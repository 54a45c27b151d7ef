export type { Api } from "./api.ts";
export type { Artifacts } from "./artifacts.ts";
export { connect, type Airlock } from "./connect.ts";
export * from "./errors.ts";
export type * from "./generated.ts";
export type { Job, Jobs, WaitOptions } from "./jobs.ts";
export type { CallOptions, ConnectOptions } from "./transport.ts";
