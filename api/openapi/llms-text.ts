/** How a language model uses the service: https://llmstxt.org. A test runs its examples. */
export const llmsText = `# Airlock

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
