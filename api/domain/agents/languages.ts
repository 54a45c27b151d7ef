import type { JobTypeView } from "../../../shared/wire/job-type.ts";
import { imageOf, type Environment } from "../environment.ts";
import { languagesOf } from "../program.ts";
import type { AgentReport } from "./capacity.ts";

type LanguageView = JobTypeView["languages"][number];

/**
 * Languages that jobs of a type may name, without Python. Agents that have looked into the image say which of the
 * usual ones it has; nobody knows that of a job type's own.
 */
export function languagesThere(
  environment: Environment,
  agents: Pick<AgentReport, "accepts">[],
): LanguageView[] {
  const { jobType } = environment;
  const image = imageOf(environment);
  const told = agents.flatMap(({ accepts }) =>
    accepts.languages?.[image] === undefined ? [] : [accepts.languages[image]],
  );
  const versions = new Map<string, string>(told.flatMap((each) => Object.entries(each)));
  const isThere = (name: string): boolean =>
    told.length === 0 || Object.hasOwn(jobType.languages, name) || versions.has(name);
  const names = Object.keys(languagesOf(jobType)).filter(isThere).sort();
  return names.map((name) => ({
    name,
    version: Object.hasOwn(jobType.languages, name) ? null : (versions.get(name) ?? null),
  }));
}

/** Why the image of a type does not run a language; undefined if it does, or if nobody knows. */
export function whyNoLanguage(
  environment: Environment,
  agents: Pick<AgentReport, "accepts">[],
  language: string,
): { detail: string; known: string } | undefined {
  const names = languagesThere(environment, agents).map(({ name }) => name);
  if (names.includes(language)) return undefined;
  return {
    detail: `The image of job type ${environment.jobType.name} has nothing that runs ${language}.`,
    known: ["python", ...names].join(", "),
  };
}
