import { z } from "zod";
import { clientId, parseWith } from "./commands.schema.ts";
import { refuseDeepJson } from "./json.ts";
import { type NewWebhook, WEBHOOK_EVENTS } from "./webhooks.ts";

const LONGEST_URL_CHARS = 2_048;
const PAGE_LIMIT = 200;

const newWebhook = z.strictObject({
  url: z.string().min(1).max(LONGEST_URL_CHARS),
  events: z.array(z.enum(WEBHOOK_EVENTS)).min(1, "must not be empty").optional(),
  secret: z
    .string()
    .regex(/^[\x21-\x7e]{16,256}$/, "must be 16 to 256 printable ASCII characters without spaces")
    .optional(),
});
const tenant = clientId.max(63).optional();
const webhookQuery = z.strictObject({ tenant });
const number = z.string().regex(/^\d{1,15}$/, "must be a number of 0 or more");
const deliveriesQuery = z.strictObject({
  tenant,
  after: number.transform(Number).default(0),
  limit: number
    .transform(Number)
    .refine((limit) => limit >= 1 && limit <= PAGE_LIMIT, `must be from 1 to ${PAGE_LIMIT}`)
    .default(100),
});
const linkAnswer = z.strictObject({ response: z.record(z.string(), z.unknown()) });

/** POST /v1/webhooks. Whether the URL may be called is for the webhooks to say. @throws BrokerError bad_request */
export function parseNewWebhook(body: unknown): NewWebhook {
  const { url, events, secret } = parseWith(newWebhook, body ?? {});
  return {
    url,
    ...(events !== undefined && { events: [...new Set(events)] }),
    ...(secret !== undefined && { secret }),
  };
}
/** The query of every /v1/webhooks route but the deliveries. @throws BrokerError bad_request */
export const parseWebhookQuery = (query: unknown) => parseWith(webhookQuery, query);
/** GET /v1/webhooks/{id}/deliveries. @throws BrokerError bad_request */
export const parseDeliveriesQuery = (query: unknown) => parseWith(deliveriesQuery, query);

/** POST /v1/answers/{ticket}: the inner `response` of a control_response. @throws BrokerError bad_request */
export function parseLinkAnswer(body: unknown): { readonly response: Readonly<Record<string, unknown>> } {
  const answer = parseWith(linkAnswer, body ?? {});
  refuseDeepJson(answer.response, "response");
  return answer;
}
