# Any image with Debian and Node 24 will do: docker build --build-arg BASE_IMAGE=…
ARG BASE_IMAGE=node:24-bookworm-slim

FROM ${BASE_IMAGE} AS build
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
RUN npm ci --ignore-scripts --no-audit --no-fund
COPY tsconfig.json tsconfig.build.json ./
COPY scripts ./scripts
COPY src ./src
RUN npm run build
# What a checkout needs and a server does not: tools, the pinned Node (the image has its own), the tests' second CLI version.
RUN npm prune --omit=dev --ignore-scripts --no-audit --no-fund \
 && rm -rf node_modules/node-linux-* node_modules/.bin/node node_modules/claude-code-[0-9]*

FROM ${BASE_IMAGE}
LABEL org.opencontainers.image.title="patchbay" \
      org.opencontainers.image.description="Broker between clients and agent command lines" \
      org.opencontainers.image.licenses="Apache-2.0"
# git and ripgrep are for the agents; tini passes signals on and reaps what they leave behind.
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates git ripgrep tini \
 && rm -rf /var/lib/apt/lists/* \
 && groupadd --gid 10001 patchbay \
 && useradd --uid 10001 --gid 10001 --home-dir /var/lib/patchbay --shell /usr/sbin/nologin patchbay \
 && install -d -o 10001 -g 10001 -m 0700 /var/lib/patchbay
WORKDIR /app
COPY --from=build /app/node_modules ./node_modules
COPY --from=build /app/dist ./dist
COPY package.json LICENSE PROTOCOL.md openapi.yaml ./
ENV NODE_ENV=production \
    PATCHBAY_HOST=0.0.0.0 \
    PATCHBAY_PORT=4400 \
    PATCHBAY_DATA_DIR=/var/lib/patchbay \
    PATCHBAY_RUNNER=inline
# inline: whatever ends the container ends a runner in it, too; so the server stops its agents in order itself.
USER 10001:10001
VOLUME /var/lib/patchbay
EXPOSE 4400
HEALTHCHECK --interval=30s --timeout=5s --start-period=10s --retries=3 \
  CMD ["node", "-e", "fetch(`http://127.0.0.1:${process.env.PATCHBAY_PORT}/healthz`).then((answer) => process.exit(answer.ok ? 0 : 1), () => process.exit(1))"]
# -s: reap orphans even where another init is process 1 (docker run --init, compose init: true).
ENTRYPOINT ["tini", "-s", "--", "node", "/app/dist/cli.js"]
CMD ["serve"]
