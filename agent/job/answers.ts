import type { Client } from "../api/client.ts";
import type { CallAnswer } from "../sandbox/job.ts";

/** Calls of one run that wait for their answers. */
export interface Answers {
  /** `answer` gets the answer. Returns whether somebody must fetch answers from now on. */
  readonly expect: (number: number, answer: (given: CallAnswer) => void) => boolean;
  /** Asks the API until no call waits. */
  readonly fetch: (signal: AbortSignal) => Promise<void>;
}

const WAIT_S = 20;

export function createAnswers(client: Pick<Client, "answers">, leaseId: string): Answers {
  const pending = new Map<number, (given: CallAnswer) => void>();
  let received = 0;

  return {
    expect(number, answer) {
      pending.set(number, answer);
      return pending.size === 1;
    },
    async fetch(signal) {
      while (pending.size > 0) {
        const { answers } = await client.answers(leaseId, received, WAIT_S, signal);
        for (const { number, result_json: resultJson = "null", error } of answers) {
          received += 1;
          pending.get(number)?.(error === undefined ? { resultJson } : { error });
          pending.delete(number);
        }
      }
    },
  };
}
