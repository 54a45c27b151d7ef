import { connect } from "./connect.ts";

/** `silent`: something is there, but no engine answers. `denied`: no permission on the socket. */
export type PingResult = {
  host: string;
  state: "answers" | "absent" | "silent" | "denied";
  reason: string;
};

const PING_TIMEOUT_MS = 3000;

/** Asks the engine at `host` for a sign of life. Never throws. */
export async function pingEngine(host: string): Promise<PingResult> {
  try {
    await connect(host, PING_TIMEOUT_MS).ping();
    return { host, state: "answers", reason: "" };
  } catch (error) {
    return { host, ...explain(error as NodeJS.ErrnoException) };
  }
}

function explain(error: NodeJS.ErrnoException): Omit<PingResult, "host"> {
  switch (error.code ?? "") {
    case "ENOENT":
      return { state: "absent", reason: "no such socket" };
    case "EACCES":
    case "EPERM":
      return { state: "denied", reason: "no permission on the socket" };
    case "ECONNREFUSED":
      return { state: "silent", reason: "nobody listens there" };
    case "ECONNRESET":
      return { state: "silent", reason: `no answer within ${PING_TIMEOUT_MS / 1000} s` };
    default:
      return { state: "silent", reason: error.message.trim() };
  }
}
