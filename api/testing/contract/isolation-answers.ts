import { expect } from "vitest";
import type { Reply } from "../scripted-agent.ts";
import { secretsOf, type Things } from "./isolation-world.ts";

/** An answer, and whose things its request carried. */
export interface Answer {
  carried: Things;
  reply: Reply;
}

/** @throws Error that shows what an answer about another tenant's things tells, and the one about nobody's does not. */
export function expectSameAnswer(
  what: string,
  sent: object,
  ofOthers: Answer,
  ofNobody: Answer,
): void {
  const request = JSON.stringify(sent);
  const leaked = secretsOf(ofOthers.carried.tenant).filter(
    (one) => ofOthers.reply.text.includes(one) && !request.includes(one),
  );
  expect({ what, leaked, ...told(ofOthers) }).toEqual({ what, leaked: [], ...told(ofNobody) });
}

const uuid = /[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g;
export const withoutIds = (text: string): string => text.replaceAll(uuid, "ID");

/** What an answer says, without ids, times, and what the request carried. */
function told({ carried, reply: { status, headers, text } }: Answer): object {
  const values = [...Object.values<string>({ ...carried }), ...secretsOf(carried.tenant)];
  const sent = values.filter((value) => value.length > 1).toSorted((a, b) => b.length - a.length);
  const own = sent.reduce((rest, value) => rest.replaceAll(value, "SENT"), text);
  const plain = withoutListening(withoutIds(own))
    .replaceAll(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, "TIME")
    .replaceAll(/"sha256":"[0-9a-f]{64}"/g, '"sha256":"HASH"');
  const names = [...headers.keys()].filter((name) => name !== "connection").sort();
  return { status, names, type: headers.get("Content-Type"), plain };
}

/** The end of listening comes nearer. */
const withoutListening = (text: string): string => text.replace(/"listening_s":\d+/, "");

/** Answers by their paths. */
export type Answers = Record<string, string>;

/** @throws Error that shows each path whose answer is another one than before. */
export function expectUnchanged(before: Answers, after: Answers): void {
  const plain = (answers: Answers): Answers =>
    Object.fromEntries(
      Object.entries(answers).map(([path, text]) => [path, withoutListening(text)]),
    );
  expect(plain(after)).toEqual(plain(before));
}
