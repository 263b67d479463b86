import type { ServerResponse } from "node:http";
import { constants, Http2ServerResponse } from "node:http2";

/** Ends a response so that its reader sees that it is not whole: an HTTP/2 stream that is only destroyed would look complete. */
export function cutResponse(response: ServerResponse): void {
  const either: unknown = response;
  if (either instanceof Http2ServerResponse) either.stream.close(constants.NGHTTP2_INTERNAL_ERROR);
  else response.destroy();
}
