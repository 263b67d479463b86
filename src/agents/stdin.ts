import type { Writable } from "node:stream";
import { isJsonObject, type JsonObject } from "../protocol/json.ts";
import { BrokerError } from "../protocol/problems.ts";

/** What may wait for an agent that does not read. It holds several of the largest queries; beyond it the agent is given up. */
const PENDING_LIMIT_BYTES = 256 * 1024 * 1024;

/** The one writer of an agent's stdin. */
export interface AgentStdin {
  /** Takes a line made by `stdinLine`. Resolves when the pipe has taken it, or when the pipe is dead. */
  write(line: Uint8Array): Promise<void>;
  /** End of file, after what was written. May be called twice. */
  end(): void;
}

export interface StdinTrouble {
  /** The agent closed its stdin (EPIPE), usually because it is dying. */
  broken(): void;
  /** More waits than the limit allows: the agent does not read. */
  overflowed(): void;
}

/** A stream error never escapes: it means that the agent went away, which its exit reports. */
export function createAgentStdin(
  stream: Writable,
  trouble: StdinTrouble,
  pendingLimitBytes = PENDING_LIMIT_BYTES,
): AgentStdin {
  stream.on("error", () => trouble.broken());
  return {
    async write(line) {
      if (!stream.writable) return;
      if (stream.writableLength + line.length > pendingLimitBytes) {
        trouble.overflowed();
        return;
      }
      await new Promise<void>((resolve) => stream.write(line, () => resolve()));
    },
    end() {
      if (!stream.writableEnded) stream.end();
    },
  };
}

/**
 * One message as one line: serialised here, so a newline inside a string is an escape and never an end of line.
 * @throws BrokerError bad_request for what would kill the CLI (spec/claude-protocol 4.2)
 */
export function stdinLine(message: JsonObject): Buffer {
  const fault = fatalFault(message);
  if (fault !== undefined) {
    throw new BrokerError("bad_request", `${fault}: the agent would die of this line. Correct it and send again.`, {
      details: { field: "payload" },
    });
  }
  return Buffer.from(`${JSON.stringify(message)}\n`, "utf8");
}

function fatalFault(message: JsonObject): string | undefined {
  switch (message["type"]) {
    case "user": {
      const inner = message["message"];
      return isJsonObject(inner) && inner["role"] === "user" ? undefined : "user message without message.role `user`";
    }
    case "control_request":
      return isJsonObject(message["request"]) ? undefined : "control_request without request";
    case "control_response":
      return isJsonObject(message["response"]) ? undefined : "control_response without response";
    default:
      return undefined;
  }
}
