import type { Tool } from "../tool.ts";
import { UsageError } from "../exit.ts";
import { satisfiesPython } from "./python-version.ts";

/** @throws UsageError if the job type has another Python than the script requires. */
export async function checkPython(
  { airlock }: Tool,
  required: string,
  jobType = "default",
): Promise<void> {
  const types = await airlock.api.listJobTypes();
  const type = types.find(({ name }) => name === jobType);
  // The service refuses an unknown job type itself.
  if (!type || satisfiesPython(required, type.python_version)) return;
  const others = types.filter((one) => satisfiesPython(required, one.python_version));
  const hint =
    others.length === 0
      ? "no job type has one (airlock types)"
      : others.map(({ name, python_version }) => `-t ${name} has ${python_version}`).join(", ");
  throw new UsageError(
    `the script requires Python ${required}, and the job type ${jobType} has ${type.python_version}: ${hint}`,
  );
}
