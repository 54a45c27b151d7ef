import { extendZodWithOpenApi } from "@hono/zod-openapi";
import { z } from "zod";
import { endWithFile } from "../../shared/testing/test-file.ts";

// Test files share their modules, so any of them may be the first to import the schemas, and zod
// gives `openapi` only to schemas that are made after this.
extendZodWithOpenApi(z);

endWithFile();
