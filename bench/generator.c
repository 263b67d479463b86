/*
 * The benchmark's agent: as much of the CLI's stream-json dialogue as a server needs to see, and otherwise a prepared corpus, written as
 * fast as stdout takes it. A user message whose text holds "bench:<count>" is answered with init, an echo, <count> corpus lines and a result.
 *
 * Environment: BENCH_CORPUS = file of lines, repeated as often as needed; BENCH_WRITE = "line" (one write(2) each, as the CLI does) or
 * "block" (64 KiB at a time). `generator.ts` is the same program for machines without a C compiler.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCK_BYTES (64 * 1024)

struct line {
  const char *start;
  size_t bytes;
};

static char *corpus;
static struct line *lines;
static size_t line_count;
static int by_block;
static const char *session_id = "00000000-0000-4000-8000-000000000000";

static void fail(const char *what) {
  perror(what);
  exit(1);
}

static void put(const char *bytes, size_t count) {
  while (count > 0) {
    ssize_t written = write(STDOUT_FILENO, bytes, count);
    if (written < 0) fail("write");
    bytes += written;
    count -= (size_t)written;
  }
}

static void load(const char *path) {
  FILE *file = fopen(path, "rb");
  if (!file || fseek(file, 0, SEEK_END) != 0) fail("BENCH_CORPUS");
  long size = ftell(file);
  rewind(file);
  corpus = malloc((size_t)size + 1);
  if (!corpus || fread(corpus, 1, (size_t)size, file) != (size_t)size) fail("BENCH_CORPUS");
  fclose(file);
  size_t room = 1024;
  lines = malloc(room * sizeof *lines);
  for (char *at = corpus, *end = corpus + size; at < end;) {
    char *feed = memchr(at, '\n', (size_t)(end - at));
    if (!feed) break;
    if (line_count == room) lines = realloc(lines, (room *= 2) * sizeof *lines);
    if (!lines) fail("realloc");
    lines[line_count++] = (struct line){at, (size_t)(feed + 1 - at)};
    at = feed + 1;
  }
}

/* Copies the string field's value; empty when the field is absent. Ids only: nothing in them is escaped. */
static void field(const char *json, const char *name, char *out, size_t room) {
  char key[64];
  snprintf(key, sizeof key, "\"%s\":\"", name);
  const char *found = strstr(json, key);
  size_t used = 0;
  if (found)
    for (found += strlen(key); *found && *found != '"' && used + 1 < room; found++) out[used++] = *found;
  out[used] = 0;
}

static void say(const char *format, const char *first, const char *second) {
  char text[4096];
  int count = snprintf(text, sizeof text, format, first, second);
  put(text, (size_t)count);
}

static void emit(size_t count) {
  static char block[BLOCK_BYTES];
  size_t used = 0;
  for (size_t index = 0; index < count; index++) {
    struct line one = lines[index % line_count];
    if (!by_block || one.bytes > BLOCK_BYTES) {
      put(block, used);
      used = 0;
      put(one.start, one.bytes);
      continue;
    }
    if (used + one.bytes > BLOCK_BYTES) {
      put(block, used);
      used = 0;
    }
    memcpy(block + used, one.start, one.bytes);
    used += one.bytes;
  }
  put(block, used);
}

static void take_turn(const char *message) {
  char uuid[160];
  const char *order = strstr(message, "bench:");
  field(message, "uuid", uuid, sizeof uuid);
  say("{\"type\":\"system\",\"subtype\":\"init\",\"session_id\":\"%s\",\"tools\":[],\"mcp_servers\":[],\"model\":\"bench\","
      "\"permissionMode\":\"default\",\"claude_code_version\":\"2.1.332\",\"user_message_uuids\":[\"%s\"]}\n",
      session_id, uuid);
  say("{\"type\":\"user\",\"message\":{\"role\":\"user\",\"content\":\"bench\"},\"parent_tool_use_id\":null,\"session_id\":\"%s\","
      "\"uuid\":\"%s\",\"isReplay\":true}\n",
      session_id, uuid);
  emit(order ? strtoul(order + strlen("bench:"), NULL, 10) : 0);
  say("{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":false,\"duration_ms\":1,\"num_turns\":1,\"result\":\"\","
      "\"stop_reason\":\"end_turn\",\"total_cost_usd\":0,\"session_id\":\"%s\",\"terminal_reason\":\"completed\","
      "\"user_message_uuids\":[\"%s\"]}\n",
      session_id, uuid);
}

static void take(const char *message) {
  char id[160];
  if (strstr(message, "\"type\":\"control_request\"")) {
    field(message, "request_id", id, sizeof id);
    say("{\"type\":\"control_response\",\"response\":{\"subtype\":\"success\",\"request_id\":\"%s\",\"response\":{\"commands\":[],"
        "\"models\":[],\"account\":{}}}}\n%s",
        id, "");
  } else if (strstr(message, "\"type\":\"user\"")) {
    take_turn(message);
  }
}

int main(int argc, char **argv) {
  static const char *const id_flags[] = {"--session-id=", "--resume="};
  for (int index = 1; index < argc; index++) {
    if (strcmp(argv[index], "--version") == 0) {
      puts("2.1.332 (Claude Code)");
      return 0;
    }
    for (size_t flag = 0; flag < 2; flag++) {
      size_t length = strlen(id_flags[flag]);
      if (strncmp(argv[index], id_flags[flag], length) == 0) session_id = argv[index] + length;
    }
  }
  const char *path = getenv("BENCH_CORPUS");
  const char *write_mode = getenv("BENCH_WRITE");
  by_block = write_mode && strcmp(write_mode, "block") == 0;
  load(path ? path : "");
  char *message = NULL;
  size_t room = 0;
  while (getline(&message, &room, stdin) > 0) take(message);
  return 0;
}
