import { join } from "node:path";
import { type SqlHost, shuttingDown, startSqlHost } from "./host.ts";
import type { SqlLimits, SqlStatement, SqlStep } from "./port.ts";

/** A call that waits for a process, or has one. */
interface Call {
  readonly tenant: string;
  /** The axon's database: its calls run one after the other, in the order they came. */
  readonly file: string;
  readonly settle: PromiseWithResolvers<readonly SqlStep[]>;
  readonly statements: readonly SqlStatement[];
}

/** The processes that run statements, shared fairly. */
export interface SqlHosts {
  /** How many calls on this file wait or run. */
  pending(file: string): number;
  /** @throws BrokerError sql_limit, draining, internal */
  run(tenant: string, file: string, statements: readonly SqlStatement[]): Promise<readonly SqlStep[]>;
  /** Resolves when no call on the file runs or waits. */
  quiet(file: string): Promise<void>;
  close(): void;
}

/** Processes are started when there is work for them, and end when there has been none for a while. */
export function createSqlHosts(folder: string, limits: SqlLimits): SqlHosts {
  const calls = new Map<string, Call[]>();
  const running = new Set<Call>();
  const idle = new Map<SqlHost, NodeJS.Timeout>();
  const hosts = new Set<SqlHost>();
  const quietWaiters = new Map<string, (() => void)[]>();
  let closed = false;

  const countOf = (tenant: string): number => [...running].filter((call) => call.tenant === tenant).length;
  /** The next call that may run: the first of an axon that has none running, of the tenant that has the fewest. */
  function next(): Call | undefined {
    if (running.size >= limits.processes) return undefined;
    const first = [...calls.values()].flatMap((queue) => queue[0] ?? []).filter((call) => !running.has(call));
    const able = first.map((call) => ({ call, count: countOf(call.tenant) }));
    const fair = able.filter(({ count }) => count < limits.processesPerTenant);
    return fair.toSorted((a, b) => a.count - b.count)[0]?.call;
  }
  function take(): SqlHost {
    for (const [host, timer] of idle) {
      clearTimeout(timer);
      idle.delete(host);
      if (!host.dead) return host;
      hosts.delete(host);
    }
    const host = startSqlHost(limits, join(folder, "tmp"));
    hosts.add(host);
    return host;
  }
  function giveBack(host: SqlHost): void {
    if (closed || host.dead) {
      host.stop();
      return void hosts.delete(host);
    }
    const retire = (): void => {
      idle.delete(host);
      hosts.delete(host);
      host.stop();
    };
    idle.set(host, setTimeout(retire, limits.idleMs).unref());
  }
  function finish(call: Call, host: SqlHost): void {
    running.delete(call);
    giveBack(host);
    const queue = calls.get(call.file);
    queue?.shift();
    if (queue?.length === 0) {
      calls.delete(call.file);
      for (const resolve of quietWaiters.get(call.file) ?? []) resolve();
      quietWaiters.delete(call.file);
    }
    startWaiting();
  }
  function startWaiting(): void {
    for (let call = next(); call !== undefined; call = next()) {
      const current = call;
      running.add(current);
      const host = take();
      const { file, statements, settle } = current;
      host
        .run({ file, statements, limits })
        .then(settle.resolve, settle.reject)
        .finally(() => finish(current, host));
    }
  }
  return {
    pending: (file) => calls.get(file)?.length ?? 0,
    run(tenant, file, statements) {
      if (closed) return Promise.reject(shuttingDown());
      const call: Call = { tenant, file, statements, settle: Promise.withResolvers() };
      const queue = calls.get(file);
      if (queue === undefined) calls.set(file, [call]);
      else queue.push(call);
      startWaiting();
      return call.settle.promise;
    },
    quiet(file) {
      if (!calls.has(file)) return Promise.resolve();
      const { promise, resolve } = Promise.withResolvers<void>();
      quietWaiters.set(file, [...(quietWaiters.get(file) ?? []), resolve]);
      return promise;
    },
    close() {
      closed = true;
      for (const queue of calls.values()) {
        for (const call of queue.filter((one) => !running.has(one))) call.settle.reject(shuttingDown());
        queue.splice(0, queue.length, ...queue.filter((one) => running.has(one)));
      }
      for (const timer of idle.values()) clearTimeout(timer);
      for (const host of hosts) host.stop();
    },
  };
}
