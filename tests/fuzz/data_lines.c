/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as lines of text and of JSON. What jansson reads as an object, ours must read, too,
 * with the same strings.
 */
#include <jansson.h>

#include "data/lines/json.h"
#include "data_memory.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// The members of the object, in ours as in jansson's: the last of each key.
static void compare(const char *text, size_t n, const json_t *theirs)
{
  struct manta__json j = {text, text + n, NULL};
  struct manta__json_value key, value;
  int rc;
  need(manta__json_open(&j, '{'));
  for (bool first = true; (rc = manta__json_member(&j, first, &key, &value)) == 1; first = false) {
    char *name = malloc(key.n + 1), *content = malloc(value.n + 1);
    int64_t len = manta__json_unescape(&key, name);
    need(len >= 0);
    name[len] = 0;
    const json_t *other = strlen(name) == (size_t)len ? json_object_get(theirs, name) : NULL;
    if (other && json_is_string(other) && value.kind == MANTA__JSON_STRING) {
      len = manta__json_unescape(&value, content);
      need(len >= 0);
      // a key that comes twice may have had another string before
      if ((size_t)len == json_string_length(other))
        need(json_object_size(theirs) > 1 ||
             !memcmp(content, json_string_value(other), (size_t)len));
    }
    free(name);
    free(content);
  }
  if (rc < 0)
    need(!strcmp(j.wrong, "nested too deeply")); // where jansson goes on
  else
    need(manta__json_ends(&j));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  manta_data_config c = MANTA_DATA_CONFIG_INIT;
  json_t *theirs = json_loadb((const char *)data, size, 0, NULL);
  if (json_is_object(theirs) && !memchr(data, 0, size)) // jansson takes a NUL behind a number
    compare((const char *)data, size, theirs);
  json_decref(theirs);
  fuzz_format(&manta__format_json, "x.jsonl", data, size, c, MANTA__PLAIN, NULL);
  fuzz_format(&manta__format_text, "x.txt", data, size, c, MANTA__PLAIN, NULL);
  return 0;
}
