import { extendZodWithOpenApi } from "@hono/zod-openapi";
import { z } from "zod";

// Unit tests share their modules, so any of them may be the first to import the schemas, and zod
// gives `openapi` only to schemas that are made after this.
extendZodWithOpenApi(z);
