import type {
  HostList,
  Invitation,
  JoinedHost,
  PoolAgent,
  PoolHistory,
} from "../../typescript/src/generated.ts";
import { api } from "./client.ts";

export type { JoinedHost, PoolAgent };
export type HistoryPoint = PoolHistory["points"][number];

export const drain = (id: string): Promise<PoolAgent> => api.drainAgent({ id });
export const resume = (id: string): Promise<PoolAgent> => api.resumeAgent({ id });
export const invite = (): Promise<Invitation> => api.inviteHost({ invitationRequest: {} });
export const listHosts = (signal: AbortSignal): Promise<HostList> => api.listHosts({ signal });
export const revoke = (id: string): Promise<JoinedHost> => api.revokeHost({ id });
/** The time that a point of the history covers. */
export const historyStepMinutes = 15;
export const getHistory = (signal: AbortSignal): Promise<PoolHistory> =>
  api.getPoolHistory({ hours: 48, step: historyStepMinutes }, { signal });
