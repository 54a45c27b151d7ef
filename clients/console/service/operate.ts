import type { Invitation } from "../../../shared/wire/hosts.ts";
import type { PoolHistory, PoolStats } from "../../../shared/wire/health.ts";
import { getJson, post } from "./call.ts";

export type Agent = PoolStats["agents"][number];
export type HistoryPoint = PoolHistory["points"][number];

const agent = (id: string): string => `/agents/${encodeURIComponent(id)}`;

export const drain = (id: string): Promise<Agent> => post(`${agent(id)}/drain`);
export const resume = (id: string): Promise<Agent> => post(`${agent(id)}/resume`);
export const invite = (): Promise<Invitation> => post("/hosts/invitations", {});
export const getHistory = (signal: AbortSignal): Promise<PoolHistory> =>
  getJson("/pool/history?hours=48&step=15", signal);
