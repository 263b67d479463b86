import { isJsonObject, type JsonObject } from "../../protocol/json.ts";
import { BrokerError, PROBLEMS, type ProblemCode } from "../../protocol/problems.ts";
import type { StopPatience } from "../port.ts";
import type { ForkSource, SessionPlace, StartRequest, Transcript } from "../runner-port.ts";

/** What a server may ask of a runner. Each can be asked again without harm, so that a broken link is no riddle. */
export type Method = "start" | "join" | "forget" | "stop" | "read" | "has" | "store" | "remove";

/** A field of a call. @throws BrokerError bad_request */
export function textOf(json: JsonObject, field: string): string {
  const value = json[field];
  if (typeof value !== "string") throw malformed(field);
  return value;
}

/** A whole number from 0 on. @throws BrokerError bad_request */
export function numberOf(json: JsonObject, field: string, highest = Number.MAX_SAFE_INTEGER): number {
  const value = json[field];
  if (typeof value !== "number" || !Number.isSafeInteger(value) || value < 0 || value > highest) throw malformed(field);
  return value;
}

/** What a frame's header has room for. @throws BrokerError bad_request */
export function channelOf(json: JsonObject): number {
  return numberOf(json, "channel", 0xffff_ffff);
}

/** Node's timers fire at once for more. */
const LONGEST_TIMER_MS = 0x7fff_ffff;

export function patienceOf(json: JsonObject): StopPatience {
  return { eofMs: numberOf(json, "eofMs", LONGEST_TIMER_MS), termMs: numberOf(json, "termMs", LONGEST_TIMER_MS) };
}

export function placeOf(value: unknown): SessionPlace {
  if (!isJsonObject(value)) throw malformed("place");
  const cwd = value["cwd"] === undefined ? {} : { cwd: textOf(value, "cwd") };
  return { tenant: textOf(value, "tenant"), sessionId: textOf(value, "sessionId"), ...cwd };
}

/** The options were checked by the server that sends them; what they become on the command line is checked again. */
export function startRequestOf(value: unknown): StartRequest {
  if (!isJsonObject(value)) throw malformed("request");
  const { options, sharedEnv, fork, command } = value;
  if (!isJsonObject(options)) throw malformed("options");
  if (!isTextRecord(sharedEnv)) throw malformed("sharedEnv");
  return {
    run: textOf(value, "run"),
    place: placeOf(value["place"]),
    options,
    cliSessionId: textOf(value, "cliSessionId"),
    ...(fork !== undefined && { fork: forkOf(fork) }),
    sharedEnv,
    rerun: value["rerun"] === true,
    mirror: value["mirror"] === true,
    ...(command !== undefined && { command: textOf(value, "command") }),
    lineLimitBytes: numberOf(value, "lineLimitBytes"),
  };
}

function forkOf(value: unknown): ForkSource {
  if (!isJsonObject(value)) throw malformed("fork");
  return { cliSessionId: textOf(value, "cliSessionId"), ...(value["at"] !== undefined && { at: textOf(value, "at") }) };
}

function isTextRecord(value: unknown): value is Readonly<Record<string, string>> {
  return isJsonObject(value) && Object.values(value).every((entry) => typeof entry === "string");
}

/** A transcript as an attachment: the files' bytes one after the other, and their names and lengths for the JSON. */
export function packTranscript(transcript: Transcript): { files: readonly JsonObject[]; attachment: Buffer } {
  const files = [...transcript].map(([path, bytes]) => ({ path, bytes: bytes.length }));
  return { files, attachment: Buffer.concat([...transcript.values()]) };
}

export function unpackTranscript(files: unknown, attachment: Buffer): Transcript {
  if (!Array.isArray(files)) throw malformed("files");
  const transcript = new Map<string, Uint8Array>();
  let from = 0;
  for (const file of files) {
    if (!isJsonObject(file)) throw malformed("files");
    const to = from + numberOf(file, "bytes");
    if (to > attachment.length) throw malformed("files");
    transcript.set(textOf(file, "path"), attachment.subarray(from, to));
    from = to;
  }
  return transcript;
}

/** How a refusal travels. What is no BrokerError is a fault of the runner, and its text is for its own eyes. */
export function problemOf(error: unknown): JsonObject {
  if (error instanceof BrokerError) {
    const { code, message, details } = error;
    return { problem: { code, message, ...(details && { details }) } };
  }
  process.emitWarning(error instanceof Error ? error : new Error(String(error)));
  return { problem: { code: "internal", message: "The runner failed; its log has the details." } };
}

/** The error that an answer tells, if it does. */
export function errorOf(answer: JsonObject): BrokerError | undefined {
  const { problem } = answer;
  if (!isJsonObject(problem)) return undefined;
  const { code, message, details } = problem;
  return new BrokerError(
    isProblemCode(code) ? code : "internal",
    typeof message === "string" ? message : "The runner refused.",
    isJsonObject(details) ? { details } : {},
  );
}

function isProblemCode(code: unknown): code is ProblemCode {
  return typeof code === "string" && Object.hasOwn(PROBLEMS, code);
}

function malformed(field: string): BrokerError {
  return new BrokerError("bad_request", `The runner was asked with a malformed ${field}.`, { details: { field } });
}
