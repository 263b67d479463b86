import type { Auth } from "../auth/port.ts";
import type { AnswerAsk } from "../webhooks/port.ts";

/** As whom the answers by a webhook's links count. */
export const webhookPrincipal = (webhookId: string): string => `webhook:${webhookId}`;

/** Makes links for the deliveries of webhooks; undefined where the server does not know its own address. */
export function answerLinks(auth: Pick<Auth, "answers">, publicUrl: string | undefined) {
  if (publicUrl === undefined) return undefined;
  return async ({ webhookId, ...ask }: AnswerAsk) => {
    const { ticket, expiresAtMs } = await auth.answers.create({ id: webhookPrincipal(webhookId), ...ask });
    return { url: `${publicUrl}/v1/answers/${ticket}`, expires_at_ms: expiresAtMs };
  };
}
