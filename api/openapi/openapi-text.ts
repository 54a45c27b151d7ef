/** Groups of endpoints, in the order in which a newcomer meets them. */
export const tags = [
  { name: "Execute", description: "Run Python code, and wait for it or not." },
  {
    name: "Jobs",
    description: "Follow a job, read its result, cancel it, derive another from it.",
  },
  { name: "Artifacts", description: "Files that the code wrote to /output." },
  { name: "Executions", description: "The record of everything that ran." },
  { name: "Job types", description: "Named environments: image, packages, limits." },
  { name: "Dead letters", description: "Asynchronous jobs that failed for good." },
  { name: "Health", description: "How the service and its agents are." },
  { name: "Description", description: "This page and what it is made of." },
];

export const introduction = `Runs untrusted Python in single-use containers.

The code finds its \`input_data\` in \`/input/data.json\`. What it prints comes back as \`stdout\` and
\`stderr\`; JSON that it writes to \`/output/result.json\` comes back as \`output\`; every other file in
\`/output\` can be downloaded as an artifact. It has no network, unless its job type gives it one.

**Try it:** open \`POST /execute\` below, choose an example, and press *Execute*.

- Code that fails is no HTTP error: the answer is 200, and \`error\` says what went wrong.
- A refused request answers with problem details (RFC 9457); its \`detail\` says what to do.
- Every answer carries \`X-Correlation-ID\`, which finds the request in the service's log;
  \`RateLimit-*\`, how many requests are left; \`X-Content-Type-Options\` and \`X-Frame-Options\`.
`;
