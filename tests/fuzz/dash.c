/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as records of a log, and as headers of a request: the dashboard's index takes them,
 * what is shown of it is JSON that can be parsed, and the guard admits only what it knows.
 */
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "dash/guard.h"
#include "dash/show.h"

#define MUST(x)                                                                                    \
  do {                                                                                             \
    if (!(x))                                                                                      \
      abort();                                                                                     \
  } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// Kind, rank, attempt and seq are a byte each, the length two; then the payload.
static size_t take_record(struct manta__entry *e, const uint8_t *p, size_t n)
{
  if (n < 6)
    return n;
  size_t len = p[4] | (size_t)p[5] << 8;
  len = len < n - 6 ? len : n - 6;
  struct manta__record h = {.kind = p[0] % 12,
                            .len = (uint32_t)len,
                            .id = {1, p[2] % 4, p[1] % 8 - 1, p[3]},
                            .wall_ns = (int64_t)n * 1000000007};
  uint8_t *exact = manta__malloc(len ? len : 1); // a byte read past it is seen
  MUST(exact);
  memcpy(exact, p + 6, len);
  MUST((e->trials ? manta__dash_trials_take(e->trials, &h, exact)
                  : manta__index_take(&e->index, &h, exact)) == MANTA_OK);
  manta__free(exact);
  return 6 + len;
}

static void must_parse(manta__buf *b)
{
  MUST(manta__buf_terminate(b) == MANTA_OK);
  json_t *v = json_loadb((const char *)b->data, b->len, JSON_ALLOW_NUL, NULL);
  MUST(v && json_is_object(v));
  json_decref(v);
  b->len = 0;
}

static void show(struct manta__entry *e)
{
  struct manta__sent sent = {0};
  struct manta__entry *list[] = {e};
  struct manta__catalog c = {.dir = e->name, .entry = list, .count = 1};
  manta__buf b;
  manta__buf_init(&b, 16u << 20);
  struct manta__dash_json j = {.to = &b};
  manta__show_run(&j, e, &sent);
  MUST(j.st == MANTA_OK);
  must_parse(&b);
  j = (struct manta__dash_json){.to = &b};
  manta__show_runs(&j, &c);
  MUST(j.st == MANTA_OK);
  must_parse(&b);
  MUST(manta__show_prometheus(&c, &b) == MANTA_OK);
  manta__buf_fini(&b);
  manta__sent_fini(&sent);
}

static void guard(const uint8_t *data, size_t size)
{
  struct manta__guard g = {.token = "0123456789abcdef", .own = "box", .allowed = "runs.example"};
  char *text = manta__strndup((const char *)data, size < 300 ? size : 300);
  MUST(text);
  if (manta__guard_host_ok(&g, text))
    MUST(strcspn(text, ":]") > 0 && !strchr(text, '/') && !strchr(text, '@') && !strchr(text, ' '));
  MUST(!manta__guard_token_ok(&g, text) || !strcmp(text, g.token));
  MUST(!manta__guard_bearer_ok(&g, text) || strstr(text, g.token));
  MUST(!manta__guard_origin_ok(&g, text, NULL, "h") || strlen(text) == strlen("http://h"));
  manta__free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  struct manta__entry e = {
      .name = (char[]){'r', '"', '\n', (char)0xff, 0}, .version = 1, .whole = 1};
  struct manta__dash_trials trials = {0};
  guard(data, size);
  for (int pass = 0; pass < 3; pass++) { // the second knows the rewinds, the third is an experiment
    for (size_t at = 0; at < size;)
      at += take_record(&e, data + at, size - at);
    MUST(manta__index_bytes(&e.index) <= MANTA__INDEX_BYTES);
    show(&e);
    manta__index_restart(&e.index, pass == 1);
    e.trials = pass == 1 ? &trials : NULL;
  }
  manta__dash_trials_fini(&trials);
  manta__index_fini(&e.index);
  return 0;
}
