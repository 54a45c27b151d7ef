import { expect } from "vitest";
import { body } from "./api.ts";
import { each, type Row } from "./row.ts";

/** Probes for process supervisors and load balancers; unlike /health, not in the contract. */
export const probeRows: Row[] = each(
  ["/health/live", "/health/ready"],
  (path) => `GET ${path} is 200 while the service serves, with an agent or without`,
  async (api, path) => {
    const reply = await api.get(path);
    expect(reply.status).toBe(200);
    expect(body(reply)).toEqual({ status: "ok" });
    await api.agent().poll({ engine: { available: false, version: null, runtimes: [] } });
    expect((await api.get(path)).status).toBe(200);
  },
);
