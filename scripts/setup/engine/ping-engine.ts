import { connect } from "./connect.ts";

/** `silent`: something is there, but no engine answers. `denied`: no permission on the socket. */
export type PingResult = {
  host: string;
  state: "answers" | "absent" | "silent" | "denied";
  reason: string;
};

/**
 * A Podman that is started through its socket takes a second or two to answer, ten on a busy
 * machine.
 */
const PING_TIMEOUT_MS = 20_000;

/** Asks the engine at `host` to answer. Never throws. */
export async function pingEngine(host: string, timeoutMs = PING_TIMEOUT_MS): Promise<PingResult> {
  try {
    await connect(host, timeoutMs).ping();
    return { host, state: "answers", reason: "" };
  } catch (error) {
    return { host, ...explain(error as NodeJS.ErrnoException, timeoutMs) };
  }
}

function explain(error: NodeJS.ErrnoException, timeoutMs: number): Omit<PingResult, "host"> {
  switch (error.code ?? "") {
    case "ENOENT":
      return { state: "absent", reason: "no such socket" };
    case "EACCES":
    case "EPERM":
      return { state: "denied", reason: "no permission on the socket" };
    case "ECONNREFUSED":
      return { state: "silent", reason: "nothing listens there" };
    case "ECONNRESET":
      return { state: "silent", reason: `no answer within ${timeoutMs / 1000} s` };
    default:
      return { state: "silent", reason: error.message.trim() };
  }
}
