import { createRoute, z, type OpenAPIHono } from "@hono/zod-openapi";
import type { Deps } from "../../deps.ts";
import { notFound } from "../../errors.ts";
import type { AppEnv } from "../../http/context.ts";
import { llmsText } from "../../openapi/llms-text.ts";
import { problemPage } from "../../openapi/problem-page.ts";
import { everywhere } from "../../openapi/responses/headers.ts";

/** Files of swagger-ui-dist that the page loads. */
const assetTypes = {
  "swagger-ui.css": "text/css; charset=utf-8",
  "swagger-ui-bundle.js": "text/javascript; charset=utf-8",
  "favicon-32x32.png": "image/png",
} as const;
type DocsAsset = keyof typeof assetTypes;

const page = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Airlock API</title>
<link rel="icon" type="image/png" href="docs/favicon-32x32.png">
<link rel="stylesheet" href="docs/swagger-ui.css">
<link rel="stylesheet" href="docs/page.css">
</head>
<body>
<div id="api"></div>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
</body>
</html>
`;

const pageScript = `SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#api",
  deepLinking: true,
  tryItOutEnabled: true,
  displayRequestDuration: true,
  defaultModelsExpandDepth: 0,
  validatorUrl: null,
});
`;

/** Headers of every answer are described in the introduction, not at each answer. */
const pageStyle = `.headers tr.header:nth-child(-n + ${everywhere.length}),
.headers-wrapper:not(:has(tr.header:nth-child(${everywhere.length + 1}))) { display: none; }
`;

const policy =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const getDocs = createRoute({
  method: "get",
  path: "/docs",
  operationId: "getDocs",
  tags: ["Description"],
  summary: "This page",
  responses: {
    200: {
      description: "The interactive description.",
      content: { "text/html": { schema: z.string() } },
    },
  },
});

/** The interactive documentation. The service serves its assets itself. */
export function docsRoutes(app: OpenAPIHono<AppEnv>, { asset }: Deps): void {
  app.openapi(getDocs, (c) => c.html(page, 200, { "Content-Security-Policy": policy }));

  app.get("/docs/problems", (c) => c.html(problemPage, 200, { "Content-Security-Policy": policy }));
  app.get("/llms.txt", (c) => c.text(llmsText));
  app.get("/docs/start.js", (c) =>
    c.body(pageScript, 200, { "Content-Type": "text/javascript; charset=utf-8" }),
  );
  app.get("/docs/page.css", (c) =>
    c.body(pageStyle, 200, { "Content-Type": "text/css; charset=utf-8" }),
  );

  app.get("/docs/:asset", async (c) => {
    const name = c.req.param("asset");
    const body = isDocsAsset(name) ? await asset(`docs/${name}`) : undefined;
    if (!isDocsAsset(name) || !body) throw notFound(`Asset ${name}`);
    const headers = { "Content-Type": assetTypes[name], "Cache-Control": "private, max-age=86400" };
    return c.body(body, 200, headers);
  });
}

function isDocsAsset(name: string): name is DocsAsset {
  return Object.hasOwn(assetTypes, name);
}
