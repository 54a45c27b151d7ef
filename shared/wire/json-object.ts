import { z } from "zod";
import { isJsonObject, type JsonObject } from "../json.ts";

export const JsonObjectSchema = z
  .custom<JsonObject>(isJsonObject, "must be a JSON object")
  .meta({ type: "object", additionalProperties: true });
