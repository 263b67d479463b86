import type { FastifyInstance } from "fastify";
import { BrokerError } from "../protocol/problems.ts";

declare module "fastify" {
  interface FastifyRequest {
    /** Size of the body as it came, in bytes. */
    bodyBytes: number;
  }
}

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

const malformed = (message: string, cause: unknown): BrokerError =>
  new BrokerError("bad_request", message, { cause, details: { field: "body" } });

/** JSON bodies: valid UTF-8, no `__proto__`, and of a known size, since limits differ by what a body turns out to be. */
export function acceptJson(app: FastifyInstance): void {
  const parseSecurely = app.getDefaultJsonParser("error", "error");
  app.decorateRequest("bodyBytes", 0);
  app.removeAllContentTypeParsers();
  app.addContentTypeParser("application/json", { parseAs: "buffer" }, (request, body, done) => {
    request.bodyBytes = body.length;
    if (body.length === 0) return done(null, undefined);
    let text: string;
    try {
      text = typeof body === "string" ? body : utf8.decode(body);
    } catch (cause) {
      return done(malformed("The body is not valid UTF-8. Encode it so.", cause));
    }
    return parseSecurely(request, text, (error, value) => {
      if (error) done(malformed("The body is not acceptable JSON. Send one JSON object without __proto__.", error));
      else done(null, value);
    });
  });
}
