import { setTimeout as sleep } from "node:timers/promises";
import type { Command } from "commander";
import { exitCode } from "../exit.ts";
import { findOne } from "../find-one.ts";
import { showList } from "../list.ts";
import { addCommand, does, type Tool } from "../tool.ts";
import { age, parseDuration } from "../words.ts";

/** Commands about agents and the hosts that they run on. */
export function addAgents(program: Command): void {
  const agents = addCommand(program, "agents", "agents, and the hosts that may run them");
  addCommand(agents, "list", "list agents and how they are")
    .alias("ls")
    .action(
      does(async (tool: Tool) => {
        const { airlock, terminal } = tool;
        const { agents: found } = await airlock.api.getPoolStats();
        showList(tool, found, "no agents: airlock agents invite adds one", {
          ID: ({ id }) => id,
          STATE: ({ state }) => state,
          JOBS: ({ running, slots }) => `${running}/${slots}`,
          SEEN: ({ last_seen }) => age(last_seen),
          NAME: ({ name }) => name,
        });
        for (const { name, problem } of found) {
          if (problem && !terminal.json) terminal.note(`${name}: ${problem}`);
        }
      }),
    );
  addCommand(agents, "hosts", "list hosts that have joined").action(
    does(async (tool: Tool) => {
      const { hosts } = await tool.airlock.api.listHosts();
      showList(tool, hosts, "no host has joined", {
        ID: ({ id }) => id,
        STATE: ({ revoked_at }) => (revoked_at ? "revoked" : "joined"),
        USED: ({ last_used_at }) => (last_used_at ? age(last_used_at) : "never"),
        NAME: ({ name }) => name,
      });
    }),
  );
  addCommand(agents, "invite", "make a code with which a host can join")
    .option("--name <name>", "name of the host")
    .option("--expires <duration>", "how long the code is valid", "1h")
    .action(
      does(
        async (
          { airlock, terminal, settings }: Tool,
          options: { name?: string; expires: string },
        ) => {
          const { name, expires } = options;
          const expires_in_s = Math.round(parseDuration(expires, "--expires") / 1000);
          const invitationRequest = { ...(name !== undefined && { name }), expires_in_s };
          const invitation = await airlock.api.inviteHost({ invitationRequest });
          if (terminal.json) return terminal.document(invitation);
          terminal.line(invitation.code);
          terminal.note(
            `\nIt joins one host, until ${invitation.expires_at}. On that host:\n  npm run agent -- join --url ${settings.url} --code ${invitation.code}`,
          );
        },
      ),
    );
  addCommand(agents, "revoke", "void the token of a host")
    .argument("<host>", "its id or name, from airlock agents hosts")
    .action(
      does(async ({ airlock, terminal }: Tool, given: string) => {
        const { hosts } = await airlock.api.listHosts();
        const open = hosts.filter(({ revoked_at }) => !revoked_at);
        const { id } = findOne(open, given, "host", "airlock agents hosts");
        const host = await airlock.api.revokeHost({ id });
        if (terminal.json) terminal.document(host);
        else
          terminal.line(`${host.name} is revoked; what it runs goes to others when its leases end`);
      }),
    );
  addCommand(agents, "rotate", "give a host a new token; its jobs go on")
    .argument("<host>", "its id or name, from airlock agents hosts")
    .action(does(rotate));
  for (const [verb, summary, done] of [
    ["drain", "give an agent no new work", "finishes its jobs and takes no new ones"],
    ["resume", "give a drained agent work again", "takes work again"],
  ] as const) {
    addCommand(agents, verb, summary)
      .argument("<agent>", "its id or name, from airlock agents list")
      .action(
        does(async ({ airlock, terminal }: Tool, given: string) => {
          const { agents: found } = await airlock.api.getPoolStats();
          const { id } = findOne(found, given, "agent", "airlock agents list");
          const call = verb === "drain" ? airlock.api.drainAgent : airlock.api.resumeAgent;
          const agent = await call({ id });
          if (terminal.json) terminal.document(agent);
          else terminal.line(`${agent.name} ${done}`);
        }),
      );
  }
}

/** How long to wait for the host. A running agent answers within seconds. */
const rotationMs = 30_000;

/** Asks a host for a new token, and waits until it has one. */
async function rotate({ airlock, terminal }: Tool, given: string): Promise<number> {
  const { hosts } = await airlock.api.listHosts();
  const open = hosts.filter(({ revoked_at }) => !revoked_at);
  let host = await airlock.api.rotateHost({
    id: findOne(open, given, "host", "airlock agents hosts").id,
  });
  const { id, name } = host;
  const end = Date.now() + rotationMs;
  while (host.rotation_asked_at !== undefined && Date.now() < end) {
    await sleep(500);
    const { hosts: now } = await airlock.api.listHosts();
    host = now.find((one) => one.id === id) ?? host;
  }
  const isDone = host.rotation_asked_at === undefined;
  if (terminal.json) terminal.document(host);
  else if (isDone) terminal.line(`${name} has a new token; the old one is void`);
  else {
    terminal.note(
      `airlock: ${name} still has its old token, and replaces it when an agent on it polls.\nTo replace it at once, run on that host, as the agent's user: npm run agent -- rotate`,
    );
  }
  return isDone ? 0 : exitCode.failed;
}
