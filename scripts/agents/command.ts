import { HostName } from "../../shared/wire/agent/join.ts";
import { parseCommandLine, wrongArguments } from "../command/arguments.ts";
import { durationMs } from "../command/duration.ts";

export type AgentsCommand =
  | { readonly name: "help" }
  | { readonly name: "invite"; readonly host: string | null; readonly expiresInMs: number }
  | { readonly name: "list" }
  | { readonly name: "revoke"; readonly agent: string };

const command = "npm run agents";

export const agentsHelp = `Usage: ${command} -- <command>

  invite [--name gpu-1] [--expires 1h]   prints a one-time code that a host joins with
  list                                   agents that have joined; never their tokens
  revoke <name or id>                    voids an agent's token

They work on the database of the configured service, also while it runs.
`;

const longestMs = 30 * 86_400_000;

const wrong = (message: string) => wrongArguments(message, command);

/** @throws OperatorError with exit code 2. */
export function parseAgentsCommand(args: string[]): AgentsCommand {
  const { values, positionals } = parseCommandLine(command, {
    args,
    allowPositionals: true,
    options: {
      name: { type: "string" },
      expires: { type: "string" },
      help: { type: "boolean", short: "h" },
    },
  });
  const [name, ...rest] = positionals;
  if (values.help) return { name: "help" };
  if (name !== "invite" && (values.name ?? values.expires) !== undefined) {
    throw wrong("--name and --expires belong to invite");
  }
  if (name === "invite" && rest.length === 0) {
    const host = values.name === undefined ? null : HostName.safeParse(values.name).data;
    if (host === undefined) throw wrong("--name takes 1 to 128 characters");
    return { name, host, expiresInMs: lifetimeMs(values.expires ?? "1h") };
  }
  if (name === "list" && rest.length === 0) return { name };
  if (name === "revoke" && rest.length === 1) return { name, agent: rest[0] ?? "" };
  throw wrong("say invite, list, or revoke with one name or id");
}

function lifetimeMs(text: string): number {
  const ms = durationMs(text) ?? 0;
  if (ms >= 60_000 && ms <= longestMs) return ms;
  throw wrong(`--expires = "${text}": say minutes, hours or days: 30m, 1h, 2d; at most 30d`);
}
