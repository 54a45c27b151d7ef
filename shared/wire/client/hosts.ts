import { z } from "zod";
import { HostName, JoinCode } from "../agent/join.ts";
import { Timestamp } from "../timestamp.ts";

/** What operators see and send of the hosts that run agents. */

const dayS = 86_400;

export const InvitationRequest = z
  .strictObject({
    name: HostName.optional().meta({
      description: "Name of the host; default: the host says its own.",
      example: "gpu-1",
    }),
    expires_in_s: z
      .int()
      .min(60)
      .max(30 * dayS)
      .default(3600)
      .meta({ description: "Seconds until the code can no longer be used." }),
  })
  .meta({ id: "InvitationRequest" });

export const Invitation = z
  .object({
    code: JoinCode.meta({ description: "Is shown once; the service stores only its hash." }),
    name: HostName.nullable(),
    expires_at: Timestamp,
  })
  .meta({ id: "Invitation", description: "A code with which one host can join, once." });
export type Invitation = z.infer<typeof Invitation>;

export const JoinedHost = z
  .object({
    id: z.uuid(),
    name: HostName,
    joined_at: Timestamp,
    last_used_at: Timestamp.nullable().meta({ description: "When its token was last used." }),
    revoked_at: Timestamp.nullable().meta({ description: "Since when its token is void." }),
    rotation_asked_at: Timestamp.optional().meta({
      description:
        "When an operator asked the host to replace its token. Absent once the new token is in use.",
    }),
    agents: z.array(z.string()).meta({
      description: "Ids of its agents, as in `GET /pool/stats`: one for each start of the program.",
    }),
  })
  .meta({ id: "JoinedHost", description: "A host that has joined with a code." });
export type JoinedHost = z.infer<typeof JoinedHost>;

export const HostList = z.object({ hosts: z.array(JoinedHost) }).meta({ id: "HostList" });
