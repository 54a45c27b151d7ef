import { random } from "../soak/random.ts";
import { createEventQueue } from "./event-queue.ts";

/** A service under a steady load. Jobs arrive at random (Poisson); times are in seconds. */
export type Setting = {
  readonly agents: number;
  /** Jobs that each agent runs at once. */
  readonly slots: number;
  readonly jobsPerS: number;
  /** Of a job on an agent, on the average; exponentially distributed. */
  readonly jobS: number;
  /** How long a poll waits for work. */
  readonly pollWaitS: number;
  /** Between agent and API, there and back. */
  readonly roundTripS: number;
  /** How long the load lasts, after a tenth of it that is not counted. */
  readonly lengthS: number;
  readonly seed: number;
};

export type Simulated = {
  /** Of all slots, those in use. */
  readonly utilization: number;
  /** From submission until an agent runs it. */
  readonly wait: { readonly mean: number; readonly p50: number; readonly p99: number };
  readonly pollsPerS: number;
  /** Of the polls, those that brought jobs. */
  readonly claimsPerS: number;
  /** Of the polls, those that waited for nothing all their time. */
  readonly emptyPollsPerS: number;
  /** Of the jobs, those that came as the answer to a result. */
  readonly withResult: number;
};

/** An agent restarts its poll when a job that came with a result has run for this long: agent/lease/poll.ts. */
const missingS = 0.25;

type Agent = { free: number; poll: Poll | undefined };
/** What an agent has asked for: no more jobs than it had slots when it asked. */
type Poll = { readonly free: number; readonly agent: Agent };

/**
 * Agents and API as they treat each other: a new job wakes one waiting poll, a poll takes as many
 * waiting jobs as it has slots, a result brings the next job where all slots were in use.
 */
export function simulate(setting: Setting): Simulated {
  const { slots, jobsPerS, jobS, pollWaitS, roundTripS, lengthS, seed } = setting;
  const { add, runUntil } = createEventQueue();
  const { next } = random(seed);
  const [fromS, endS] = [lengthS / 10, lengthS * 1.1];
  const beginS = Math.min(pollWaitS, fromS) / 2;
  const exponential = (mean: number) => -Math.log(1 - next()) * mean;
  const queue: number[] = [];
  let head = 0;
  const waiting = new Set<Poll>();
  const waits: number[] = [];
  let [polls, claims, empty, taken, withResult, busyS] = [0, 0, 0, 0, 0, 0];
  const count = (nowS: number) => (nowS >= fromS && nowS < endS ? 1 : 0);

  function take(agent: Agent, most: number, nowS: number, isWithResult = false): number {
    let got = 0;
    for (; got < most && head < queue.length; got++, head++) {
      agent.free -= 1;
      const [submittedS, beginsS, lastsS] = [
        queue[head]!,
        nowS + roundTripS / 2,
        exponential(jobS),
      ];
      if (count(submittedS)) {
        waits.push(beginsS - submittedS);
        taken += 1;
        withResult += Number(isWithResult);
      }
      busyS += Math.max(0, Math.min(beginsS + lastsS, endS) - Math.max(beginsS, fromS));
      if (isWithResult && lastsS > missingS) add(beginsS + missingS, (at) => ask(agent, at));
      add(beginsS + lastsS, (at) => end(agent, at));
    }
    return got;
  }

  /** Asks anew, whatever it had asked before. */
  function ask(agent: Agent, nowS: number): void {
    if (agent.poll) waiting.delete(agent.poll);
    const poll = { free: agent.free, agent };
    agent.poll = poll;
    polls += count(nowS);
    add(nowS + roundTripS / 2, (at) => {
      if (agent.poll !== poll) return;
      if (take(agent, poll.free, at) > 0) bring(poll, at);
      else wait(poll, at);
    });
  }

  function wait(poll: Poll, nowS: number): void {
    if (poll.free > 0) waiting.add(poll);
    add(nowS + pollWaitS, (at) => {
      if (poll.agent.poll !== poll) return;
      empty += count(at);
      answer(poll, at);
    });
  }

  function bring(poll: Poll, nowS: number): void {
    claims += count(nowS);
    answer(poll, nowS);
  }

  function answer(poll: Poll, nowS: number): void {
    waiting.delete(poll);
    poll.agent.poll = undefined;
    add(nowS + roundTripS / 2, (at) => ask(poll.agent, at));
  }

  function end(agent: Agent, nowS: number): void {
    const wasFull = agent.free === 0;
    add(nowS + roundTripS / 2, (at) => {
      agent.free += 1;
      if (wasFull && take(agent, 1, at, true) > 0) return;
      // A poll that asked while nothing was free keeps work away.
      if (agent.poll && agent.poll.free === 0) ask(agent, at);
    });
  }

  function arrive(nowS: number): void {
    queue.push(nowS);
    const [first] = waiting;
    if (first && take(first.agent, first.free, nowS) > 0) bring(first, nowS);
    add(nowS + exponential(1 / jobsPerS), arrive);
  }

  for (let i = 0; i < setting.agents; i++) {
    const agent: Agent = { free: slots, poll: undefined };
    add(next() * beginS, (at) => ask(agent, at));
  }
  // No queue is left of a time with fewer agents.
  if (jobsPerS > 0) add(beginS, arrive);
  runUntil(endS);
  const sorted = waits.toSorted((a, b) => a - b);
  const at = (share: number) => sorted[Math.floor(share * (sorted.length - 1))] ?? 0;
  return {
    utilization: busyS / (setting.agents * slots * lengthS),
    wait: {
      mean: waits.reduce((sum, one) => sum + one, 0) / Math.max(1, waits.length),
      p50: at(0.5),
      p99: at(0.99),
    },
    pollsPerS: polls / lengthS,
    claimsPerS: claims / lengthS,
    emptyPollsPerS: empty / lengthS,
    withResult: withResult / Math.max(1, taken),
  };
}
