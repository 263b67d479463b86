import type { FastifyInstance, FastifyRequest } from "fastify";
import type { AuditActor } from "../../../auth/audit.ts";
import type { Secrets } from "../../../auth/secrets.ts";
import type { Action } from "../../../protocol/roles.ts";
import { parseNewSecret, parseSecretList, parseSecretValue } from "../../../protocol/runloop-secrets.schema.ts";
import type { SecretView } from "../../../protocol/secrets.ts";

export interface SecretRouteParts {
  readonly secrets: Omit<Secrets, "valueOf">;
  /** Who asks, if they may do this in their tenant. @throws BrokerError unauthenticated, forbidden */
  admit(request: FastifyRequest, action: Action): Promise<{ readonly tenant: string; readonly actor: AuditActor }>;
}

const shown = ({ id, name, created_at_ms, updated_at_ms }: SecretView) => ({
  id,
  name,
  create_time_ms: created_at_ms,
  update_time_ms: updated_at_ms,
});

function nameOf({ params }: FastifyRequest): string {
  const name = typeof params === "object" && params !== null && "name" in params ? params.name : undefined;
  return typeof name === "string" ? name : "";
}

/** The routes of secrets as Runloop's clients call them. No answer has a value. Names are for drivers to see; all else is an admin's. */
export function registerSecrets(app: FastifyInstance, { secrets, admit }: SecretRouteParts): void {
  // Before the body is read: who may not call does not get to send it.
  const change = { onRequest: async (request: FastifyRequest) => void (await admit(request, "administer")) };
  app.post("/v1/secrets", change, async (request) => {
    const { tenant, actor } = await admit(request, "administer");
    return shown(await secrets.create(tenant, parseNewSecret(request.body), actor));
  });
  app.get("/v1/secrets", async (request) => {
    const { tenant } = await admit(request, "drive");
    const { secrets: found, total } = await secrets.list(tenant, parseSecretList(request.query).limit);
    return { secrets: found.map(shown), has_more: found.length < total, total_count: total };
  });
  app.get("/v1/secrets/:name", async (request) => {
    const { tenant } = await admit(request, "drive");
    return shown(await secrets.read(tenant, nameOf(request)));
  });
  app.post("/v1/secrets/:name", change, async (request) => {
    const { tenant, actor } = await admit(request, "administer");
    const { value } = parseSecretValue(request.body);
    return shown(await secrets.update(tenant, { name: nameOf(request), value }, actor));
  });
  app.post("/v1/secrets/:name/delete", change, async (request) => {
    const { tenant, actor } = await admit(request, "administer");
    return shown(await secrets.remove(tenant, nameOf(request), actor));
  });
}
