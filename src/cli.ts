#!/usr/bin/env node
import { Command } from "commander";
import { attachCommand } from "./cli/attach.ts";
import { demoCommand } from "./cli/demo.ts";
import { doctorCommand } from "./cli/doctor.ts";
import { failureLine } from "./cli/failure.ts";
import { keysCommand } from "./cli/keys.ts";
import { openCommand } from "./cli/open.ts";
import { runCommand } from "./cli/run.ts";
import { runnerCommand } from "./cli/runner.ts";
import { serveCommand } from "./cli/serve.ts";
import { sessionsCommand } from "./cli/sessions.ts";
import { VERSION } from "./version.ts";

const program = new Command("patchbay")
  .description("A broker between clients and agent command lines: ordered, durable sessions.")
  .version(VERSION, "-V, --version")
  .showHelpAfterError("Run it with --help to see what it takes.")
  .showSuggestionAfterError()
  .configureHelp({ showGlobalOptions: true });

for (const command of [
  serveCommand(),
  demoCommand(),
  runCommand(),
  attachCommand(),
  sessionsCommand(),
  keysCommand(),
  openCommand(),
  runnerCommand(),
  doctorCommand(),
]) {
  program.addCommand(command);
}

// A reader that has seen enough (`| head`) is no failure.
process.stdout.on("error", (error: NodeJS.ErrnoException) => process.exit(error.code === "EPIPE" ? 0 : 1));

try {
  await program.parseAsync();
} catch (error) {
  console.error(failureLine(error));
  process.exitCode = 1;
}
