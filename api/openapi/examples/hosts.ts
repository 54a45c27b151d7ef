import type { Invitation, JoinedHost } from "../../../shared/wire/client/hosts.ts";

/** A host with one agent, and the code that it joined with. */

export const agentId = "019aa5ef-0d3c-7b51-a6f0-91c2d3e4f506";

export const invitation: Invitation = {
  code: "alj_6b1d0c9e8f7a6b5c4d3e2f1a0b9c8d7e6f5a4b3c",
  name: "gpu-1",
  expires_at: "2026-11-22T10:30:00.000Z",
};

export const joinedHost: JoinedHost = {
  id: "0198c39f-2a41-7d6c-8b5e-4f3a2b1c0d9e",
  name: "gpu-1",
  joined_at: "2026-11-22T09:31:12.000Z",
  last_used_at: "2026-11-22T09:45:00.000Z",
  revoked_at: null,
  agents: [agentId],
};
