/* SPDX-License-Identifier: Apache-2.0
 *
 * http:// and s3://: ranges, servers that are busy or die half-way, listings in pages, accounts.
 */
#include "data/source/remote.h"

#include "files.h"
#include "reading.h"
#include "remote/s3.h"
#include "remote/s3role.h"
#include "web.h"

static char *dir;
static char *body; /* CSV: the numbers from 0 on */
static size_t body_size;
#define ROWS 1000000

static int set_up(void **state)
{
  static const char *const unset[] = {
      "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",       "AWS_SESSION_TOKEN",   "AWS_PROFILE",
      "AWS_REGION",        "AWS_DEFAULT_REGION",          "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL",
      "http_proxy",        "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"};
  setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
  dir = scratch_make();
  setenv("HOME", dir, 1);
  for (size_t i = 0; i < sizeof unset / sizeof *unset; i++)
    unsetenv(unset[i]);
  body = malloc((size_t)ROWS * 10 + 16);
  body_size = (size_t)snprintf(body, 16, "n\n");
  for (int i = 0; i < ROWS; i++)
    body_size += (size_t)snprintf(body + body_size, 10, "%d\n", i);
  return 0;
}

static int tear_down(void **state)
{
  free(body);
  scratch_remove(dir);
  return 0;
}

static const char *url_of(const struct web *w, const char *path)
{
  static char url[256];
  snprintf(url, sizeof url, "http://127.0.0.1:%d/%s", w->port, path);
  return url;
}

static struct manta__source *open_url(const char *url)
{
  struct manta__source *s;
  manta_error err = MANTA_ERROR_INIT;
  manta__remote_know(url, NULL); // of an earlier server, perhaps
  assert_ok(manta__source_open(&s, url, &err), &err);
  assert_int_equal(s->size, body_size);
  return s;
}

static void assert_bytes(struct manta__source *s, int64_t at, size_t n)
{
  manta_error err = MANTA_ERROR_INIT;
  char *got = malloc(n);
  assert_ok(manta__source_read(s, at, got, n, &err), &err);
  assert_memory_equal(got, body + at, n);
  free(got);
}

// --- reading ------------------------------------------------------------------------------------

static void ranges_are_read_in_any_order(void **state)
{
  struct web w;
  web_start(&w, body, body_size, NULL);
  struct manta__source *s = open_url(url_of(&w, "x.csv"));
  assert_bytes(s, 5, 10);
  assert_bytes(s, 0, 1);
  assert_bytes(s, (int64_t)body_size - 1, 1);
  assert_bytes(s, 1000000, 3000000); // larger than a chunk
  for (int i = 0; i < 50; i++)
    assert_bytes(s, (i * 7919L * 1013) % ((int64_t)body_size - 70000), 70000);
  manta__source_close(s);
  web_stop(&w);
}

static void only_what_was_announced_is_fetched(void **state)
{
  struct web w;
  web_start(&w, body, body_size, NULL);
  struct manta__source *s = open_url(url_of(&w, "x.csv"));
  int before = w.requests;
  manta__source_expect(s, 100000, 6100000);
  for (int64_t at = 100000; at < 6100000; at += 50000)
    assert_bytes(s, at, 50000);
  assert_int_equal(w.last, 6100000 - 1);
  assert_in_range(w.requests - before, 3, 4); // of 2 MiB each
  manta__source_close(s);
  web_stop(&w);
}

static manta_status rows_of(manta_dataset *d, int64_t block, int64_t *out, manta_error *err)
{
  manta_reader *r;
  manta_batch *b;
  int rc;
  *out = 0;
  MANTA_TRY(manta_reader_open(&r, d, block, 1, err));
  while ((rc = manta_reader_next(r, &b, err)) == 1) {
    *out += manta_batch_rows(b);
    manta_batch_destroy(b);
  }
  manta_reader_close(r);
  return (manta_status)rc;
}

static void a_server_without_ranges_is_one_stream(void **state)
{
  struct web w;
  manta_error err = MANTA_ERROR_INIT;
  char byte;
  web_start(&w, body, body_size, NULL);
  w.no_range = true;
  struct manta__source *s = open_url(url_of(&w, "whole.csv"));
  manta__source_expect(s, 0, s->size);
  for (int64_t at = 0; at < s->size; at += 300000)
    assert_bytes(s, at, (size_t)(s->size - at < 300000 ? s->size - at : 300000));
  int requests = w.requests;
  assert_true(requests <= 2 + MANTA__HTTP_SLOTS); // HEAD, ranges that were tried, the stream
  assert_bytes(s, 5000000, 100);                  // back: once more from the beginning
  assert_int_equal(w.requests, requests + 1);
  w.cut = 2; // and when the stream breaks off
  assert_bytes(s, 1, body_size - 1);
  assert_int_equal(w.cut, 0);
  w.size = body_size / 2;
  assert_status(manta__source_read(s, 3, &byte, 1, &err), MANTA_OK);
  assert_status(manta__source_read(s, s->size - 1, &byte, 1, &err), MANTA_EIO);
  assert_has(err.message, "it was cut while it was read");
  manta__source_close(s);
  web_stop(&w);
}

// All rows of a data set of numbers, in their order.
static void assert_numbers(const char *url, size_t block_bytes)
{
  manta_data_config c = MANTA_DATA_CONFIG_INIT;
  manta_error err = MANTA_ERROR_INIT;
  manta_dataset *d;
  manta_reader *r;
  manta_batch *b;
  int64_t n = 0;
  c.block_bytes = block_bytes;
  assert_ok(manta_dataset_open(&d, &url, 1, &c, &err), &err);
  assert_true(manta_dataset_blocks(d) > 4);
  assert_ok(manta_reader_open(&r, d, 0, manta_dataset_blocks(d), &err), &err);
  while (manta_reader_next(r, &b, &err) == 1) {
    manta_column x;
    assert_ok(manta_batch_column(b, 0, &x, &err), &err);
    for (int64_t i = 0; i < x.rows; i++)
      assert_int_equal(((const int64_t *)x.data)[x.offset + i], n++);
    manta_batch_destroy(b);
  }
  assert_int_equal(n, ROWS);
  manta_reader_close(r);
  manta_dataset_close(d);
}

static void data_sets_lie_behind_urls(void **state)
{
  struct web w;
  web_start(&w, body, body_size, NULL);
  assert_numbers(url_of(&w, "x.csv"), 1 << 20);
  web_stop(&w);
}

// A server that gives only the whole is asked for it once, and what breaks off is fetched again.
static void servers_that_give_only_the_whole_are_copied(void **state)
{
  struct web w;
  web_start(&w, body, body_size, NULL);
  w.no_size = true;
  w.cut = 2;
  assert_numbers(url_of(&w, "nosize.csv"), 1 << 20);
  assert_int_equal(w.cut, 0);
  assert_int_equal(w.requests, 1 + 3); // HEAD, twice a half, the whole
  w.no_head = true;
  assert_numbers(url_of(&w, "nohead.csv"), 1 << 20);
  assert_int_equal(w.requests, 4 + 2);
  w.no_size = w.no_head = false;
  w.no_range = true;
  w.sent = 0;
  assert_numbers(url_of(&w, "norange.csv"), 1 << 20);
  assert_in_range(w.sent, body_size, 8 * body_size); // some ranges are tried before that is known
  web_stop(&w);
}

static void copies_have_a_limit(void **state)
{
  struct web w;
  struct manta__source *s;
  manta_error err = MANTA_ERROR_INIT;
  web_start(&w, body, body_size, NULL);
  w.no_size = true;
  setenv("MANTA_DATA_SPOOL", "3", 1);
  assert_status(manta__source_open(&s, url_of(&w, "large.csv"), &err), MANTA_ETOOBIG);
  assert_has(err.message, "large.csv: has more bytes than may be copied");
  assert_has(err.message, "hint: MANTA_DATA_SPOOL is 3 MB; or download it first");
  w.no_size = false;
  w.no_range = true; // its size is known: it can be read as a stream
  s = open_url(url_of(&w, "stream.csv"));
  assert_bytes(s, 5, 10);
  manta__source_close(s);
  assert_ok(manta__source_open(&s, url_of(&w, "stream.csv"), &err), &err);
  assert_bytes(s, 3, 100000);
  manta__source_close(s);
  w.no_range = false;
  w.no_size = true;
  setenv("MANTA_DATA_SPOOL", "10", 1); // one of two: the other goes, and is fetched again
  for (int i = 0; i < 4; i++) {
    assert_ok(manta__source_open(&s, url_of(&w, i % 2 ? "one.csv" : "two.csv"), &err), &err);
    assert_bytes(s, 0, body_size);
    manta__source_close(s);
  }
  unsetenv("MANTA_DATA_SPOOL");
  setenv("TMPDIR", "/nowhere", 1);
  assert_status(manta__source_open(&s, url_of(&w, "nowhere.csv"), &err), MANTA_EIO);
  assert_has(err.message, "nowhere.csv: cannot be copied to /nowhere: No such file");
  unsetenv("TMPDIR");
  web_stop(&w);
}

// A data set opens a file once for each block, and asks for its size once.
static void an_object_is_looked_at_once(void **state)
{
  struct web w;
  manta_error err = MANTA_ERROR_INIT;
  web_start(&w, body, body_size, NULL);
  struct manta__source *s = open_url(url_of(&w, "once.csv"));
  manta__source_close(s);
  assert_int_equal(w.requests, 1);
  for (int i = 0; i < 5; i++) {
    assert_ok(manta__source_open(&s, url_of(&w, "once.csv"), &err), &err);
    manta__source_close(s);
  }
  assert_int_equal(w.requests, 1);
  assert_ok(manta__source_open(&s, url_of(&w, "once.csv"), &err), &err);
  w.etag = 7; // it is another one now
  char byte;
  assert_status(manta__source_read(s, 0, &byte, 1, &err), MANTA_EIO);
  manta__source_close(s);
  assert_ok(manta__source_open(&s, url_of(&w, "once.csv"), &err), &err);
  assert_bytes(s, 0, 10);
  manta__source_close(s);
  web_stop(&w);
}

// Rows of a number and a text with newlines inside of quotes, or of two numbers; 48 bytes at most.
static size_t make_rows(char *to, int rows, bool quotes)
{
  static const char *const forms[] = {"%d,%d\n", "%d,\"a, \"\"b\"\"\n%d,2\n\"\n"};
  size_t at = (size_t)snprintf(to, 48, "n,text\n");
  for (int i = 0; i < rows; i++)
    at += (size_t)snprintf(to + at, 48, forms[quotes], i, i);
  return at;
}

// A file is cut by looking around the cuts, in the same places as one that lies here.
static void cuts_are_found_without_reading_all(void **state)
{
  enum { LINES = 300000 };
  char *text = malloc((size_t)(LINES + 1) * 48);
  manta_data_config c = MANTA_DATA_CONFIG_INIT;
  manta_error err = MANTA_ERROR_INIT;
  c.block_bytes = 1000000;
  for (int quotes = 0; quotes < 2; quotes++) {
    struct web w;
    manta_dataset *d[2];
    size_t n = make_rows(text, LINES, quotes);
    const char *path = file_write(dir, "cuts.csv", text, n);
    web_start(&w, text, n, NULL);
    const char *url = url_of(&w, "cuts.csv");
    assert_ok(manta_dataset_open(&d[0], &url, 1, &c, &err), &err);
    assert_true(w.sent < 2000000 + (int64_t)n / 4); // some KB a cut, and the sample of types
    assert_ok(manta_dataset_open(&d[1], &path, 1, &c, &err), &err);
    assert_true(manta_dataset_blocks(d[0]) > 3);
    assert_int_equal(manta_dataset_blocks(d[0]), manta_dataset_blocks(d[1]));
    int64_t rows[2], all = 0;
    for (int64_t b = 0; b < manta_dataset_blocks(d[0]); b++, all += rows[0]) {
      for (int i = 0; i < 2; i++)
        assert_ok(rows_of(d[i], b, &rows[i], &err), &err);
      assert_int_equal(rows[0], rows[1]);
    }
    assert_int_equal(all, LINES);
    manta_dataset_close(d[0]);
    manta_dataset_close(d[1]);
    web_stop(&w);
  }
  free(text);
}

// --- failures -----------------------------------------------------------------------------------

static void busy_servers_are_asked_again(void **state)
{
  static const int statuses[] = {503, 500, 429, 0}; // 0: the connection is closed
  struct web w;
  web_start(&w, body, body_size, NULL);
  for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++) {
    w.status = statuses[i];
    w.busy = 2;
    struct manta__source *s = open_url(url_of(&w, "x.csv"));
    assert_int_equal(w.busy, 0);
    manta__source_expect(s, 0, s->size);
    w.busy = 3;
    assert_bytes(s, 0, body_size);
    assert_int_equal(w.busy, 0);
    manta__source_close(s);
  }
  web_stop(&w);
}

static void what_breaks_off_goes_on(void **state)
{
  struct web w;
  web_start(&w, body, body_size, NULL);
  struct manta__source *s = open_url(url_of(&w, "x.csv"));
  manta__source_expect(s, 0, s->size);
  w.cut = 12; // more than six in a row: each brought something
  assert_bytes(s, 0, body_size);
  assert_int_equal(w.cut, 0);
  manta__source_close(s);
  web_stop(&w);
}

static void assert_not_read(struct manta__source *s, manta_status want, const char *says)
{
  manta_error err = MANTA_ERROR_INIT;
  char byte[8];
  assert_status(manta__source_read(s, 100, byte, 8, &err), want);
  assert_has(err.message, says);
  assert_has(err.message, "x.csv");
}

static void failures_are_told(void **state)
{
  struct web w;
  manta_error err = MANTA_ERROR_INIT;
  struct manta__source *s, *none = NULL;
  web_start(&w, body, body_size, NULL);
  assert_status(manta__source_open(&none, url_of(&w, "missing"), &err), MANTA_ENOENT);
  assert_has(err.message, "there is no such file (HTTP 404)");
  w.status = 403;
  w.busy = 2; // it may be that only GET is allowed
  assert_status(manta__source_open(&none, url_of(&w, "x.csv"), &err), MANTA_EDENIED);
  s = open_url(url_of(&w, "x.csv"));
  w.status = 503;
  w.busy = MANTA__HTTP_TRIES;
  assert_not_read(s, MANTA_EIO, "HTTP 503; tried 6 times");
  w.status = 404;
  w.busy = 1;
  assert_not_read(s, MANTA_ENOENT, "is gone (HTTP 404): it was there");
  w.etag = 2;
  assert_not_read(s, MANTA_EIO, "was replaced while it was read");
  w.etag = 1;
  w.size = 50;
  assert_not_read(s, MANTA_EIO, "it was cut while it was read");
  w.size = body_size;
  web_stop(&w);
  assert_not_read(s, MANTA_EIO, "tried 6 times");
  assert_null(none);
  manta__source_close(s);
  assert_status(manta__source_open(&none, "ftp://host/x.csv", &err), MANTA_EUNSUPPORTED);
  assert_has(err.message, "s3://");
}

// --- S3 -----------------------------------------------------------------------------------------

#define KEYS 8
static const char *const keys[KEYS] = {"top.csv",      "d/a.csv",   "d/b c+&.csv", "d/.hidden.csv",
                                       "d/_tmp/x.csv", "d/e/f.csv", "d/e/g.csv",   "dd/z.csv"};
static _Atomic bool wants_key, refuses_key;

static bool has_prefix(const char *key, const char *escaped)
{
  for (; *escaped && *escaped != ' ' && *escaped != '&'; key++) {
    char c = *escaped++;
    if (c == '%') {
      char hex[3] = {escaped[0], escaped[1], 0};
      c = (char)strtol(hex, NULL, 16);
      escaped += 2;
    }
    if (*key != c)
      return false;
  }
  return true;
}

// Keys of the bucket "b", three a page; a page begins at the key of that number.
static int answer_s3(const char *request, char *out, size_t room)
{
  const char *token = strstr(request, "continuation-token="), *prefix = strstr(request, "prefix=");
  size_t at = 0;
  if (refuses_key && strcasestr(request, "\r\nAuthorization:"))
    return snprintf(out, room, "<Error/>") ? 403 : 0;
  if (wants_key && (!strcasestr(request, "\r\nAuthorization: AWS4-HMAC-SHA256 Credential=me/") ||
                    !strcasestr(request, "/eu-test-1/s3/aws4_request")))
    return snprintf(out, room, "<Error/>") ? 403 : 0;
  if (!strstr(request, "list-type=2"))
    return strstr(request, "/b/d ") || strstr(request, "/b/none") ? 404 : 0;
  int n = 0, first = token ? (int)strtol(token + strlen("continuation-token=t%3D"), NULL, 10) : 0;
  at +=
      (size_t)snprintf(out + at, room - at,
                       "<?xml version=\"1.0\"?><ListBucketResult><EncodingType>url</EncodingType>");
  for (int i = first; i < KEYS; i++) {
    if (!has_prefix(keys[i], prefix + 7))
      continue;
    if (n++ == 3) {
      snprintf(out + at, room - at,
               "<IsTruncated>true</IsTruncated><NextContinuationToken>t=%d</NextContinuationToken>"
               "</ListBucketResult>",
               i);
      return 200;
    }
    char *escaped = manta__s3_escape(keys[i], true);
    at += (size_t)snprintf(out + at, room - at,
                           "<Contents><Key>%s</Key><ETag>&quot;1&quot;</ETag><Size>%zu</Size>"
                           "</Contents>",
                           escaped, body_size);
    manta_free(escaped);
  }
  snprintf(out + at, room - at, "<IsTruncated>false</IsTruncated></ListBucketResult>");
  return 200;
}

// What the name stands for, one name after the other.
static void assert_lists(const char *name, const char *want)
{
  struct manta__listing l = {0};
  manta_error err = MANTA_ERROR_INIT;
  char got[1024] = "";
  size_t at = 0;
  assert_ok(manta__listing_make(&l, &name, 1, &err), &err);
  for (size_t i = 0; i < l.count; i++) {
    assert_int_equal(l.found[i].size, body_size);
    at += (size_t)snprintf(got + at, sizeof got - at, "%s%s", i ? " " : "", l.found[i].name);
  }
  assert_string_equal(got, want);
  manta__listing_fini(&l);
}

static void buckets_are_listed_in_pages(void **state)
{
  struct web w;
  struct manta__listing l = {0};
  manta_error err = MANTA_ERROR_INIT;
  const char *none = "s3://b/none", *no_match = "s3://b/d/*.json", *no_bucket = "s3:///x";
  web_start(&w, body, body_size, answer_s3);
  char url[64];
  snprintf(url, sizeof url, "http://127.0.0.1:%d/", w.port);
  setenv("AWS_ENDPOINT_URL", url, 1);
  assert_lists("s3://b/top.csv", "s3://b/top.csv");
  assert_lists("s3://b/d/", "s3://b/d/a.csv s3://b/d/b c+&.csv s3://b/d/e/f.csv s3://b/d/e/g.csv");
  assert_lists("s3://b/d", "s3://b/d/a.csv s3://b/d/b c+&.csv s3://b/d/e/f.csv s3://b/d/e/g.csv");
  assert_lists("s3://b/d/*.csv", "s3://b/d/a.csv s3://b/d/b c+&.csv");
  assert_lists("s3://b/*/e/[fg].csv", "s3://b/d/e/f.csv s3://b/d/e/g.csv");
  assert_lists("s3://b", "s3://b/d/a.csv s3://b/d/b c+&.csv s3://b/d/e/f.csv s3://b/d/e/g.csv "
                         "s3://b/dd/z.csv s3://b/top.csv");
  assert_status(manta__listing_make(&l, &none, 1, &err), MANTA_ENOENT);
  assert_status(manta__listing_make(&l, &no_match, 1, &err), MANTA_ENOENT);
  assert_has(err.message, "no object matches this pattern");
  assert_status(manta__listing_make(&l, &no_bucket, 1, &err), MANTA_EINVAL);
  struct manta__source *s = open_url("s3://b/d/b c+&.csv");
  assert_bytes(s, 0, body_size);
  manta__source_close(s);
  unsetenv("AWS_ENDPOINT_URL");
  web_stop(&w);
}

static void requests_are_signed(void **state)
{
  struct web w;
  manta_error err = MANTA_ERROR_INIT;
  struct manta__source *s = NULL;
  char url[64];
  web_start(&w, body, body_size, answer_s3);
  wants_key = true;
  snprintf(url, sizeof url, "http://127.0.0.1:%d", w.port);
  setenv("AWS_ENDPOINT_URL_S3", url, 1);
  manta__remote_know("s3://b/top.csv", NULL);
  assert_status(manta__source_open(&s, "s3://b/top.csv", &err), MANTA_EDENIED);
  assert_has(err.message, "AWS_ACCESS_KEY_ID");
  setenv("AWS_ACCESS_KEY_ID", "me", 1);
  setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
  setenv("AWS_REGION", "eu-test-1", 1);
  s = open_url("s3://b/top.csv");
  assert_bytes(s, 0, 1000);
  manta__source_close(s);
  assert_lists("s3://b/d/*.csv", "s3://b/d/a.csv s3://b/d/b c+&.csv");
  assert_status(manta__source_open(&s, "s3://anonymous@b/top.csv", &err), MANTA_EDENIED);
  wants_key = false; // and those of nobody are not
  refuses_key = true;
  s = open_url("s3://anonymous@b/top.csv");
  assert_bytes(s, 0, 1000);
  manta__source_close(s);
  assert_lists("s3://anonymous@b/d/*.csv", "s3://anonymous@b/d/a.csv s3://anonymous@b/d/b c+&.csv");
  refuses_key = false;
  unsetenv("AWS_ACCESS_KEY_ID");
  unsetenv("AWS_SECRET_ACCESS_KEY");
  unsetenv("AWS_REGION");
  unsetenv("AWS_ENDPOINT_URL_S3");
  wants_key = false;
  web_stop(&w);
}

static int answer_roles(const char *request, char *out, size_t room)
{
  const char *form = NULL;
  if (strstr(request, "Action=AssumeRoleWithWebIdentity") &&
      strstr(request, "RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fx") &&
      strstr(request, "WebIdentityToken=proof%2Bme"))
    form = "<A><Credentials><AccessKeyId>web</AccessKeyId><SecretAccessKey>s</SecretAccessKey>"
           "<SessionToken>t</SessionToken><Expiration>2001-01-01T00:00:00Z</Expiration></A>";
  else if (!strncmp(request, "PUT /latest/api/token ", 22) &&
           strcasestr(request, "\r\nX-aws-ec2-metadata-token-ttl-seconds: 21600\r\n"))
    form = "passed";
  else if (!strcasestr(request, "\r\nX-aws-ec2-metadata-token: passed\r\n"))
    return 401;
  else if (!strncmp(request, "GET /latest/meta-data/iam/security-credentials/ ", 48))
    form = "role-7\n";
  else if (strstr(request, "/security-credentials/role-7 "))
    form = "{\"Code\": \"Success\", \"AccessKeyId\": \"machine\", \"SecretAccessKey\": \"s\", "
           "\"Token\": \"t\", \"Expiration\": \"2999-01-01T00:00:00Z\"}";
  snprintf(out, room, "%s", form ? form : "");
  return form ? 200 : 404;
}

// Those that end are asked for again: each time whoever is there lends them.
static void keys_are_lent(void **state)
{
  struct web w;
  struct manta__s3_lent lent;
  char url[64], path[PATH_MAX];
  web_start(&w, body, body_size, answer_roles);
  snprintf(url, sizeof url, "http://127.0.0.1:%d", w.port);
  file_text(dir, "token", "proof+me\n");
  snprintf(path, sizeof path, "%s/token", dir);
  setenv("AWS_ENDPOINT_URL_STS", url, 1);
  setenv("AWS_WEB_IDENTITY_TOKEN_FILE", path, 1);
  setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/x", 1);
  assert_true(manta__s3_borrow("us-east-1", &lent));
  assert_string_equal(lent.user, "web");
  assert_string_equal(lent.token, "t");
  unsetenv("AWS_ROLE_ARN");
  setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", url, 1);
  unsetenv("AWS_EC2_METADATA_DISABLED");
  assert_true(manta__s3_borrow("us-east-1", &lent));
  assert_string_equal(lent.user, "machine");
  int asked = w.requests;
  assert_true(manta__s3_borrow("us-east-1", &lent));
  assert_int_equal(w.requests, asked); // they last
  struct manta__s3_account a;
  setenv("HOME", "/nonexistent", 1); // no keys of the user's own
  manta__s3_account(&a);
  setenv("HOME", dir, 1);
  assert_string_equal(a.user, "machine");
  assert_string_equal(a.token, "x-amz-security-token: t");
  setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
  web_stop(&w);
}

static void accounts_come_from_files(void **state)
{
  struct manta__s3_account a;
  char path[PATH_MAX];
  snprintf(path, sizeof path, "%s/.aws", dir);
  mkdir(path, 0700);
  manta__s3_account(&a);
  assert_string_equal(a.sign, "");
  assert_string_equal(a.region, "us-east-1");
  file_text(dir, ".aws/credentials",
            "# keys\n[other]\naws_access_key_id = wrong\n[default]\n  aws_access_key_id=one \n"
            "aws_secret_access_key = two\n[work]\naws_access_key_id = three\n"
            "aws_secret_access_key = four\naws_session_token = five\n");
  file_text(dir, ".aws/config",
            "[default]\nregion = eu-west-1\n[profile work]\nregion=ap-south-1\n"
            "endpoint_url = http://host:9000\n");
  manta__s3_account(&a);
  assert_string_equal(a.user, "one");
  assert_string_equal(a.secret, "two");
  assert_string_equal(a.sign, "aws:amz:eu-west-1:s3");
  assert_string_equal(a.token, "");
  char *url = manta__s3_url(&a, "bucket", "a b/ü", NULL);
  assert_string_equal(url, "https://bucket.s3.eu-west-1.amazonaws.com/a%20b/%C3%BC");
  manta_free(url);
  url = manta__s3_url(&a, "dot.ted", "k", NULL);
  assert_string_equal(url, "https://s3.eu-west-1.amazonaws.com/dot.ted/k");
  manta_free(url);
  setenv("AWS_PROFILE", "work", 1);
  manta__s3_account(&a);
  assert_string_equal(a.user, "three");
  assert_string_equal(a.token, "x-amz-security-token: five");
  assert_string_equal(a.sign, "aws:amz:ap-south-1:s3");
  url = manta__s3_url(&a, "bucket", "", "list-type=2");
  assert_string_equal(url, "http://host:9000/bucket/?list-type=2");
  manta_free(url);
  setenv("AWS_PROFILE", "other", 1); // has no secret
  manta__s3_account(&a);
  assert_string_equal(a.sign, "");
  unsetenv("AWS_PROFILE");
}

static manta_status count_key(void *ctx, const struct manta__s3_object *object, manta_error *err)
{
  (*(int *)ctx)++;
  return MANTA_OK;
}

static void listings_that_make_no_sense_are_refused(void **state)
{
  static const struct {
    const char *xml, *says;
  } cases[] = {
      {"", "no listing"},
      {"<html>", "no listing"},
      {"<ListBucketResult><Contents><Key>a</Key></Contents>", "without a key or a size"},
      {"<ListBucketResult><IsTruncated>true</IsTruncated>", "does not say where"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    manta_error err = MANTA_ERROR_INIT;
    char *token;
    int n = 0;
    assert_status(manta__s3_page(cases[i].xml, strlen(cases[i].xml), count_key, &n, &token, &err),
                  MANTA_EPROTO);
    assert_has(err.message, cases[i].says);
    assert_null(token);
    assert_int_equal(n, 0);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ranges_are_read_in_any_order),
      cmocka_unit_test(only_what_was_announced_is_fetched),
      cmocka_unit_test(data_sets_lie_behind_urls),
      cmocka_unit_test(busy_servers_are_asked_again),
      cmocka_unit_test(what_breaks_off_goes_on),
      cmocka_unit_test(failures_are_told),
      cmocka_unit_test(buckets_are_listed_in_pages),
      cmocka_unit_test(requests_are_signed),
      cmocka_unit_test(accounts_come_from_files),
      cmocka_unit_test(keys_are_lent),
      cmocka_unit_test(a_server_without_ranges_is_one_stream),
      cmocka_unit_test(servers_that_give_only_the_whole_are_copied),
      cmocka_unit_test(copies_have_a_limit),
      cmocka_unit_test(an_object_is_looked_at_once),
      cmocka_unit_test(cuts_are_found_without_reading_all),
      cmocka_unit_test(listings_that_make_no_sense_are_refused),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
