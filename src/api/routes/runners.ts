import { type Call, type Route, type RunnerStanding, refuseNarrowed, scopeOf } from "../context.ts";

/** The runners that have ever dialled in, of the caller's tenant (an operator's: of all), linked or not. */
function listRunners({ context, principal }: Call): object {
  refuseNarrowed(principal);
  const byName = (one: RunnerStanding, other: RunnerStanding): number =>
    one.tenant.localeCompare(other.tenant) || one.name.localeCompare(other.name);
  const runners = [...context.runners.list(scopeOf(principal))].sort(byName).map((runner) => {
    const { version, claude_version } = runner.about();
    return {
      tenant: runner.tenant,
      name: runner.name,
      labels: runner.labels(),
      linked: runner.isLinked(),
      ...(!runner.isLinked() && { away_ms: Math.round(runner.awayMs()) }),
      agents: runner.remote.runs().length,
      ...(typeof version === "string" && { version }),
      ...(typeof claude_version === "string" && { claude_version }),
    };
  });
  return { runners };
}

export const RUNNER_ROUTES: readonly Route[] = [
  { method: "GET", url: "/v1/runners", access: "read", handle: listRunners },
];
