import { z } from "zod";
import { isJsonObject } from "../json.ts";
import { atMost, JsonObjectSchema } from "./json-object.ts";
import { limits } from "./limits.ts";
import { isPythonName } from "../python-names.ts";

const ToolName = z
  .string()
  .regex(/^(?!__)[A-Za-z_][A-Za-z0-9_]{0,63}$/, "must be an identifier of at most 64 characters")
  .refine((name) => !isPythonName(name), "must not be a keyword or a built-in name of Python");

const hasNames = (value: unknown): boolean =>
  value === undefined || (Array.isArray(value) && value.every((name) => typeof name === "string"));
const hasProperties = ({ properties, required }: Record<string, unknown>): boolean =>
  (properties === undefined || isJsonObject(properties)) && hasNames(required);

export const Tool = z
  .strictObject({
    name: ToolName.meta({ description: "Its name in the code.", example: "get_price" }),
    description: z
      .string()
      .refine((text) => text.isWellFormed(), "must not contain unpaired surrogates")
      .optional()
      .meta({ description: "Its docstring.", example: "The price of an item, in cents." }),
    parameters: JsonObjectSchema.refine(
      hasProperties,
      "must have an object as properties and a list of names as required, if it has them",
    )
      .optional()
      .meta({
        description:
          "A JSON Schema of its arguments. The parameters of the function are the names in `properties`; those in `required` have no default. The service does not check values.",
      }),
    awaitable: z
      .boolean()
      .optional()
      .meta({ description: "true: it is a coroutine function, which the code awaits." }),
  })
  .meta({ id: "Tool", description: "A function of the caller that the code can call." });
export type Tool = z.infer<typeof Tool>;

const bytesOf = (value: unknown): number => new TextEncoder().encode(JSON.stringify(value)).length;

/** On every request that makes a job. */
export const tools = {
  tools: atMost(
    limits.toolsMax,
    z
      .array(Tool)
      .superRefine((all, context) => {
        for (const [n, { name }] of all.entries()) {
          if (all.findIndex((one) => one.name === name) === n) continue;
          context.addIssue({ code: "custom", path: [n, "name"], message: "is used twice" });
        }
      })
      .refine(
        (all) => bytesOf(all) <= limits.toolsMaxBytes,
        `must be at most ${limits.toolsMaxBytes} bytes of JSON`,
      ),
  )
    .optional()
    .meta({
      maxItems: limits.toolsMax,
      description:
        "Functions that the code can call by name. Each call is an event `tool_call`; the function returns what `POST /jobs/{id}/tool-calls/{number}` answers. The code runs as with `results: true`, and with `max_attempts` 1.",
    }),
  tool_timeout: z
    .int()
    .min(1)
    .max(limits.timeoutSchemaMaxS)
    .optional()
    .meta({
      description: `Seconds that calls of \`tools\` may wait for their answers, all together; they are not part of \`timeout\`. Default: ${limits.toolTimeoutDefaultS}. At most the configured \`max_timeout\`.`,
      example: 60,
    }),
};
