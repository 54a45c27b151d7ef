import { createRoute, type OpenAPIHono, z } from "@hono/zod-openapi";
import type { Context } from "hono";
import { accepts } from "hono/accepts";
import { getRuntimeKey } from "hono/adapter";
import type { Deps } from "../deps.ts";
import { AppError, type ErrorCode, errorStatus, errorTitles, notFound } from "../errors.ts";
import type { AppEnv } from "./context.ts";
import { everywhere } from "./responses.ts";

/** Files of swagger-ui-dist that the page loads. */
const assetTypes = {
  "swagger-ui.css": "text/css; charset=utf-8",
  "swagger-ui-bundle.js": "text/javascript; charset=utf-8",
  "favicon-32x32.png": "image/png",
} as const;
type DocsAsset = keyof typeof assetTypes;

/** @param links Further lines of the head. */
const htmlPage = (title: string, links: string, body: string): string => `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${title}</title>
${links}</head>
<body>
${body}
</body>
</html>
`;

const page = htmlPage(
  "Airlock API",
  `<link rel="icon" type="image/png" href="docs/favicon-32x32.png">
<link rel="stylesheet" href="docs/swagger-ui.css">
<link rel="stylesheet" href="docs/page.css">
`,
  `<div id="api"></div>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>`,
);

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

const docsPolicy =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const getDocs = createRoute({
  method: "get",
  path: "/docs",
  operationId: "getDocs",
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
  app.openapi(getDocs, (c) => c.html(page, 200, { "Content-Security-Policy": docsPolicy }));

  app.get("/docs/problems", (c) =>
    c.html(problemPage, 200, { "Content-Security-Policy": docsPolicy }),
  );
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

/** What each code of a refusal means, and what a client does about it. */
const meanings: Record<ErrorCode, string> = {
  invalid_request:
    "The request is malformed, or a field is wrong: <code>errors</code> has the path of each field. Send a corrected request.",
  unauthorized:
    "The API key is missing or wrong. Send one of the configured keys, or one that an operator made.",
  forbidden: "The caller may not do this, whatever key it sends: <code>detail</code> says why.",
  not_found: "The path, job, artifact or job type does not exist, or was removed.",
  method_not_allowed: "The path exists, but not for this method: <code>Allow</code> lists those.",
  wait_timeout: "The wait is over before the job has ended. The job goes on: ask again.",
  conflict:
    "The state does not allow this: the idempotency key has another payload (use a new key), or the job has ended or has not ended yet.",
  session_ended:
    "The session has ended, for the <code>reason</code> that the answer names: its variables and files are gone. Make a new session.",
  lease_lost: "For agents: the lease no longer holds.",
  length_required:
    "The size of a file must be known before its bytes: send <code>Content-Length</code>.",
  too_large: "The body is too large. Send less, or raise the limit that <code>detail</code> names.",
  unsupported_encoding:
    "Bodies are read as they are: send this one without <code>Content-Encoding</code>.",
  range_not_satisfiable: "The file has no byte of this <code>Range</code>.",
  timeout_too_long:
    "The <code>timeout</code> is above the configured <code>max_timeout</code>, or the <code>lifetime</code> of a session above <code>max_session_lifetime</code>.",
  language_unavailable:
    "The job type has no such <code>language</code>. Use one that <code>errors</code> names, or send a <code>command</code>.",
  batch_too_large:
    "An atomic batch is larger than the queue, or than a limit of the tenant. Send smaller batches, or have the limit raised that <code>detail</code> names.",
  files_too_large:
    "The files are larger than a quarter of the job's memory limit, and no agent mounts files. Send less, raise <code>memory_limit</code>, or connect an agent that forks jobs.",
  build_failed: "The image was not built because of what the job type asks for.",
  rate_limited: "Too many requests. Wait for the seconds that <code>Retry-After</code> says.",
  quota_exceeded:
    "The tenant has reached its limit <code>quota</code>, as <code>GET /usage</code> shows. Nothing was stored. Send the request again after <code>Retry-After</code>, or have the limit raised.",
  too_many_sessions:
    "The tenant has as many sessions as it may have at once. End one, or raise <code>max_sessions_per_tenant</code>.",
  headers_too_large: "The address and the headers are too long.",
  internal: "A fault of the service. Its log has more under the <code>correlation_id</code>.",
  engine_failed: "The image was not built because of the container engine.",
  unavailable:
    "The service cannot take the request now. Send it again after <code>Retry-After</code>; if <code>job_id</code> names a job, look at that job first.",
};

const sections = (Object.keys(errorStatus) as ErrorCode[]).map(
  (code) =>
    `<h2 id="${code}"><code>${code}</code></h2>\n<p>${errorStatus[code]} ${errorTitles[code]}. ${meanings[code]}</p>`,
);

/** The page that the `type` of every problem points to. */
const problemPage = htmlPage(
  "Airlock: problems",
  "",
  `<h1>Problems</h1>
<p>Every refused request is answered with problem details (RFC 9457). Programs decide by <code>code</code>.</p>
${sections.join("\n")}`,
);

/** How a language model uses the service: https://llmstxt.org. A test runs its examples. */
const llmsText = `# Airlock

> Airlock runs untrusted code, Python or another language, in isolated containers, over HTTP: code in, output and files out.

With a key, send \`Authorization: Bearer KEY\` with every request. Bodies are JSON. \`/openapi.json\` describes every
endpoint and field.

## Run code

\`POST /execute\` answers when the code has ended:

\`\`\`sh
curl -sS "$AIRLOCK_URL/execute" -H "Authorization: Bearer $AIRLOCK_KEY" -H 'Content-Type: application/json' \\
  -d '{"code": "import json; n = json.load(open(\\"/input/data.json\\"))[\\"n\\"]; print(n * 7)", "input_data": {"n": 6}}'
\`\`\`

The answer has \`success\`, \`stdout\`, \`stderr\`, \`exit_code\`, \`output\`, \`error\` and \`job_id\`. Code that fails is answered
with HTTP 200, \`success: false\` and an \`error\` with \`type\` and \`message\`: mend the code and send it again.

## What the code finds

- \`/input/data.json\`: \`input_data\` of the request. \`sys.argv[1:]\`: \`args\`. \`input()\`: \`stdin\`.
- \`/output/result.json\`: if the code writes a JSON object there, it comes back as \`output\`.
- \`/output/*\`: every other file is kept as an artifact, at \`GET /jobs/{job_id}/artifacts/{name}\`.
- \`/tmp\`: scratch space. Everything else is read-only.
- There is no network, unless the job type has one. Code runs as uid 1000, with limits on time, memory and processes.
- The code is Python unless \`"language"\` (such as \`bash\`) or \`"command"\` says otherwise. The image must have that program.
- \`GET /job-types\` lists environments with their packages; choose one with \`"job_type"\`. \`"timeout"\` is in seconds.

## Longer work

\`POST /execute/async\` takes the same body and answers at once with a \`job_id\`. Then ask for the result, which waits up to
\`timeout\` seconds; 408 means that the job goes on: ask again.

\`\`\`sh
job=$(curl -sS "$AIRLOCK_URL/execute/async" -H "Authorization: Bearer $AIRLOCK_KEY" \\
  -H 'Content-Type: application/json' -H 'Idempotency-Key: my-task-1' \\
  -d '{"code": "open(\\"/output/a.txt\\", \\"w\\").write(\\"done\\")"}' | grep -o '"job_id":"[^"]*"' | cut -d '"' -f 4)
curl -sS "$AIRLOCK_URL/jobs/$job/result?wait=true&timeout=25&view=full" -H "Authorization: Bearer $AIRLOCK_KEY"
curl -sS "$AIRLOCK_URL/jobs/$job/artifacts/a.txt" -H "Authorization: Bearer $AIRLOCK_KEY"
\`\`\`

- With \`Idempotency-Key\`, the same request sent again gets the same job.
- \`POST /jobs/{job_id}/cancel\` ends a job. \`POST /jobs/{job_id}/fork\` with \`code\` runs new code on its input.
- \`POST /execute/batch\` queues up to 1,000 jobs: \`{"jobs": [{"code": "…"}]}\`.

## When a request is refused

The body has a \`code\` and a \`detail\` that says what to do; \`errors\` has the path of each wrong field. After 429 and 503,
wait for the seconds of \`Retry-After\`. \`/docs/problems\` explains every code.

## Clients

\`airlock-exec\` for Python (module \`airlock\`) and for TypeScript: \`run\`, \`submit\`, \`wait\`, \`stream\`, \`files\`, \`artifacts\`,
\`batch\`. In Python: \`airlock.connect(url, key=key).run("print(1)")["stdout"]\`.
`;

/** CodeMirror's styles are in shadow roots, as constructed style sheets: no inline style is needed. */
const consolePolicy = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "font-src 'self'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join("; ");

const types: Record<string, string> = {
  css: "text/css; charset=utf-8",
  js: "text/javascript; charset=utf-8",
  svg: "image/svg+xml",
  woff2: "font/woff2",
};

/**
 * The web console. Its page and files need no key and are not counted by the rate limit: the page asks
 * for the key, and speaks the public interface with it.
 */
export function consoleRoutes(app: OpenAPIHono<AppEnv>, { asset }: Deps): void {
  // Programs still get 404 with a JSON body, as before the console.
  app.use("/", async (c, next) => {
    const isBrowser = c.req.method === "GET" && c.req.header("Accept")?.includes("text/html");
    return isBrowser ? c.redirect("/console") : next();
  });

  const zip = async (path: string): Promise<ArrayBuffer | undefined> => {
    const gzip = new CompressionStream("gzip") as TransformStream<Uint8Array, Uint8Array>;
    const file = await asset(path);
    return file && new Response(file.pipeThrough(gzip)).arrayBuffer();
  };
  // Compressed once for all: a client needs no key to ask again and again.
  const zipped = new Map<string, ReturnType<typeof zip>>();
  const zippedOnce = async (path: string): Promise<ArrayBuffer | undefined> => {
    const kept = zipped.get(path) ?? zip(path);
    zipped.set(path, kept);
    let bytes: ArrayBuffer | undefined;
    try {
      return (bytes = await kept);
    } finally {
      if (!bytes) zipped.delete(path);
    }
  };
  app.get("/console/assets/:name", async (c) => {
    const name = c.req.param("name");
    const type = types[/^\w[\w-]*\.([a-z0-9]+)$/.exec(name)?.[1] ?? ""];
    if (type === undefined) throw notFound(`Asset ${name}`);
    const headers = {
      "Content-Type": type,
      // The file name contains the hash of the content.
      "Cache-Control": "public, max-age=31536000, immutable",
      Vary: "Accept-Encoding",
    };
    const encoding = accepts(c, { header: "Accept-Encoding", supports: ["gzip"], default: "" });
    // A font is compressed already. Workers compress by themselves, and would do so twice.
    const isZipped = encoding && type !== types["woff2"] && getRuntimeKey() !== "workerd";
    const path = `console/assets/${name}`;
    const body = isZipped ? await zippedOnce(path) : await asset(path);
    if (!body) throw notFound(`Asset ${name}`);
    return c.body(body, 200, { ...headers, ...(isZipped && { "Content-Encoding": "gzip" }) });
  });

  const page = async (c: Context<AppEnv>) => {
    const body = await asset("console/index.html");
    if (!body) {
      throw new AppError("not_found", "The console is not built: `npm run console` builds it.");
    }
    return c.body(body, 200, {
      "Content-Type": "text/html; charset=utf-8",
      "Content-Security-Policy": consolePolicy,
      "Referrer-Policy": "no-referrer",
      "Cache-Control": "no-cache",
    });
  };
  app.get("/console", page);
  // Every view has an address of its own, and the page shows the view.
  app.get("/console/*", page);
}
