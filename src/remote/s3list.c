/* SPDX-License-Identifier: Apache-2.0
 *
 * remote/s3list.c - listings of S3: pages of XML, of which four elements are looked at.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "remote/s3.h"

#define PAGE_MAX  ((size_t)16 << 20)
#define PAGES_MAX 1000000

// --- XML ----------------------------------------------------------------------------------------

/* A piece of the text. */
struct xml_span {
  const char *p, *end;
};

// What lies in the next <name>…</name>; false: there is none. *in moves behind it.
static bool next_element(struct xml_span *in, const char *name, struct xml_span *out)
{
  char open[64], close[64];
  int a = snprintf(open, sizeof open, "<%s>", name),
      b = snprintf(close, sizeof close, "</%s>", name);
  const char *from = memmem(in->p, (size_t)(in->end - in->p), open, (size_t)a);
  if (!from)
    return false;
  from += a;
  const char *to = memmem(from, (size_t)(in->end - from), close, (size_t)b);
  if (!to)
    return false;
  *out = (struct xml_span){from, to};
  in->p = to + b;
  return true;
}

static bool element(struct xml_span in, const char *name, struct xml_span *out)
{
  return next_element(&in, name, out);
}

// &amp; and the others, of a value that is only handed back.
static char *plain_text(struct xml_span s)
{
  static const char *const names[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&apos;"};
  char *out = manta__malloc((size_t)(s.end - s.p) + 1), *to = out;
  for (const char *p = s.p; out && p < s.end;) {
    int k = 0;
    size_t n = 0;
    for (; k < 5; k++) {
      n = strlen(names[k]);
      if ((size_t)(s.end - p) >= n && !memcmp(p, names[k], n))
        break;
    }
    *to++ = k < 5 ? "&<>\"'"[k] : *p;
    p += k < 5 ? n : 1;
  }
  if (out)
    *to = 0;
  return out;
}

static int hex(char c)
{
  return c >= '0' && c <= '9'   ? c - '0'
         : c >= 'a' && c <= 'f' ? c - 'a' + 10
         : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                : -1;
}

// %41 is A; a plus is a blank, as servers write it in URLs.
static void unescape(char *text)
{
  char *to = text;
  for (const char *p = text; *p; p++) {
    if (*p == '%' && hex(p[1]) >= 0 && hex(p[2]) >= 0) {
      *to++ = (char)(hex(p[1]) << 4 | hex(p[2]));
      p += 2;
    } else
      *to++ = *p == '+' ? ' ' : *p;
  }
  *to = 0;
}

static bool truth(struct xml_span page, const char *name)
{
  struct xml_span s;
  return element(page, name, &s) && s.end - s.p == 4 && !memcmp(s.p, "true", 4);
}

static manta_status read_object(struct xml_span object, bool escaped, manta__s3_each each,
                                void *ctx, manta_error *err)
{
  struct xml_span key, size;
  struct manta__s3_object found = {0};
  if (!element(object, "Key", &key) || !element(object, "Size", &size))
    return manta_error_set(err, MANTA_EPROTO, "an object without a key or a size");
  char *name = plain_text(key);
  if (!name)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a listing");
  if (escaped)
    unescape(name);
  found.key = name;
  found.size = strtoll(size.p, NULL, 10);
  manta_status st = each(ctx, &found, err);
  manta__free(name);
  return st;
}

manta_status manta__s3_page(const char *xml, size_t n, manta__s3_each each, void *ctx, char **token,
                            manta_error *err)
{
  struct xml_span page = {xml, xml + n}, object, next, at;
  *token = NULL;
  const char *root = memmem(xml, n, "<ListBucketResult", 17);
  if (!root)
    return manta_error_set(err, MANTA_EPROTO, "is no listing of a bucket");
  at = page;
  bool escaped = element(page, "EncodingType", &next);
  while (next_element(&at, "Contents", &object))
    MANTA_TRY(read_object(object, escaped, each, ctx, err));
  if (!truth(page, "IsTruncated"))
    return MANTA_OK;
  if (!element(page, "NextContinuationToken", &next))
    return manta_error_set(err, MANTA_EPROTO, "has more pages, but does not say where");
  return (*token = plain_text(next))
             ? MANTA_OK
             : manta_error_set(err, MANTA_ENOMEM, "no memory for a listing");
}

// --- pages --------------------------------------------------------------------------------------

// Sorted by name and escaped, as the signature wants it.
static char *query_of(const char *prefix, const char *token)
{
  char *p = manta__s3_escape(prefix, false), *t = token ? manta__s3_escape(token, false) : NULL;
  char *query = NULL;
  if (p && (t || !token))
    query = manta__asprintf("%s%s%sencoding-type=url&list-type=2&prefix=%s",
                            t ? "continuation-token=" : "", t ? t : "", t ? "&" : "", p);
  manta__free(p);
  manta__free(t);
  return query;
}

static manta_status fetch_page(const struct manta__s3_account *a, const char *name,
                               const char *bucket, const char *query, uint8_t *page, size_t *n,
                               manta_error *err)
{
  struct manta__http_reply r;
  char *url = manta__s3_url(a, bucket, "", query);
  if (!url)
    return manta_error_set(err, MANTA_ENOMEM, "%s: no memory to list it", name);
  struct manta__http_call call = {.method = "GET", .url = url, .to = page, .room = PAGE_MAX};
  manta__s3_sign(a, &call);
  manta_status st = manta__http_ask(&call, name, &r, err);
  manta__free(url);
  if (st == MANTA_OK && r.status >= 300)
    st = manta__http_failed(&r, name, err);
  *n = r.got;
  return st;
}

static manta_status list_pages(const struct manta__s3_account *a, const char *name,
                               const char *bucket, const char *prefix, uint8_t *page,
                               manta__s3_each each, void *ctx, manta_error *err)
{
  char *token = NULL;
  manta_status st = MANTA_OK;
  for (int i = 0; st == MANTA_OK && (i == 0 || token) && i < PAGES_MAX; i++) {
    size_t n = 0;
    manta_error why = MANTA_ERROR_INIT;
    char *query = query_of(prefix, token);
    manta__free(token);
    token = NULL;
    st = query ? fetch_page(a, name, bucket, query, page, &n, err)
               : manta_error_set(err, MANTA_ENOMEM, "%s: no memory to list it", name);
    manta__free(query);
    if (st == MANTA_OK && (st = manta__s3_page((const char *)page, n, each, ctx, &token, &why)) < 0)
      st = manta_error_set(err, st, "%s: %s", name, why.message);
  }
  manta__free(token);
  return st;
}

manta_status manta__s3_list(const struct manta__s3_account *a, const char *name, const char *bucket,
                            const char *prefix, manta__s3_each each, void *ctx, manta_error *err)
{
  uint8_t *page = manta__malloc(PAGE_MAX);
  if (!page)
    return manta_error_set(err, MANTA_ENOMEM, "%s: no memory to list it", name);
  manta_status st = list_pages(a, name, bucket, prefix, page, each, ctx, err);
  manta__free(page);
  return st;
}
