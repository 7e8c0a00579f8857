/* SPDX-License-Identifier: Apache-2.0
 *
 * train/ddp_agree.c - the ranks compare what they added and what their parameters hold.
 *
 * Each time the cheap question comes first: one hash per rank. Only when they differ one rank shows
 * what it has, and the others say where they are different from it, so that all ranks end with the
 * same message.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/hash.h"
#include "sys/host.h"
#include "train/ddp.h"

#define SAID_BYTES 256 /* what a rank may say about its difference */
#define TABLE_MAX  (128u << 20)

// --- one hash per rank --------------------------------------------------------------------------

// The rank whose answer is the most frequent one: of those the first.
static int usual(const uint64_t *all, int n)
{
  int best = 0, most = 0;
  for (int i = 0; i < n && most <= n / 2; i++) {
    int same = 0;
    for (int k = 0; k < n; k++)
      same += all[k] == all[i];
    if (same > most) {
      best = i;
      most = same;
    }
  }
  return best;
}

// *pattern: the rank to compare with, or -1 if all hashes are the same.
static manta_status compare(manta_ddp *d, uint64_t hash, int *pattern, manta_error *err)
{
  int n = manta_comm_size(d->comm);
  bool equal = true;
  uint64_t *all = manta__calloc((size_t)n, sizeof *all);
  if (!all)
    return manta_error_set(err, MANTA_ENOMEM, "no memory to compare %d ranks", n);
  manta_status st = manta_comm_allgather(d->comm, &hash, all, 1, MANTA_U64, err);
  for (int i = 0; st == MANTA_OK && i < n; i++)
    equal = equal && all[i] == all[0];
  *pattern = equal ? -1 : usual(all, n);
  manta__free(all);
  return st;
}

// --- what was added -----------------------------------------------------------------------------

// A line per parameter, then one for the config: what is missing differs from that one.
static manta_status write_table(const manta_ddp *d, manta__buf *b)
{
  const manta_ddp_config *c = &d->cfg;
  for (size_t i = 0; i < d->count; i++)
    MANTA_TRY(manta__buf_printf(b, "parameter %zu '%s' of %" PRId64 " %s\n", i, d->param[i].name,
                                d->param[i].shape[0], manta_dtype_name(d->param[i].dtype)));
  return manta__buf_printf(b,
                           "%zu parameters, bucket_bytes %zu, overlap %d, compress %d, "
                           "clip_norm %.17g, check_every %d\n",
                           d->count, c->bucket_bytes, (int)c->overlap, c->compress, c->clip_norm,
                           c->check_every);
}

static int line_length(const char *s)
{
  size_t n = strcspn(s, "\n");
  return n < SAID_BYTES ? (int)n : SAID_BYTES;
}

// Both end with a line, and they are not the same.
static void tell_difference(char *said, const char *ours, const char *theirs, int rank, int pattern)
{
  size_t at = 0, line = 0;
  for (; ours[at] && ours[at] == theirs[at]; at++)
    line = ours[at] == '\n' ? at + 1 : line;
  snprintf(said, SAID_BYTES, "rank %d has %.*s, rank %d %.*s", rank, line_length(ours + line),
           ours + line, pattern, line_length(theirs + line), theirs + line);
}

// Gives the table of rank `pattern` on all ranks, as a string.
static manta_status share_table(manta_ddp *d, const manta__buf *ours, int pattern, char **out,
                                manta_error *err)
{
  uint64_t len = ours->len;
  MANTA_TRY(manta_comm_broadcast(d->comm, &len, 1, MANTA_U64, pattern, err));
  char *text = len < TABLE_MAX ? manta__calloc((size_t)len + 1, 1) : NULL;
  if (!text)
    return manta_error_set(err, MANTA_ENOMEM, "no memory to compare the parameters");
  if (manta_comm_rank(d->comm) == pattern)
    memcpy(text, ours->data, (size_t)len);
  manta_status st = manta_comm_broadcast(d->comm, text, (size_t)len, MANTA_U8, pattern, err);
  if (st == MANTA_OK)
    *out = text;
  else
    manta__free(text);
  return st;
}

// What the first rank says that has something to say.
static manta_status first_said(manta_ddp *d, const char *said, manta_error *err)
{
  int n = manta_comm_size(d->comm), i = 0;
  char *all = manta__calloc((size_t)n, SAID_BYTES);
  if (!all)
    return manta_error_set(err, MANTA_ENOMEM, "no memory to compare the parameters");
  manta_status st = manta_comm_allgather(d->comm, said, all, SAID_BYTES, MANTA_U8, err);
  while (st == MANTA_OK && i < n - 1 && !all[(size_t)i * SAID_BYTES])
    i++;
  if (st == MANTA_OK)
    st = manta_error_set(err, MANTA_EINVAL, "the ranks do not train the same: %s",
                         all + (size_t)i * SAID_BYTES);
  manta__free(all);
  return st;
}

static manta_status name_difference(manta_ddp *d, const manta__buf *ours, int pattern,
                                    manta_error *err)
{
  char said[SAID_BYTES] = "", *theirs = NULL;
  MANTA_TRY(share_table(d, ours, pattern, &theirs, err));
  if (strcmp((const char *)ours->data, theirs) != 0)
    tell_difference(said, (const char *)ours->data, theirs, manta_comm_rank(d->comm), pattern);
  manta__free(theirs);
  return first_said(d, said, err);
}

manta_status manta__ddp_agree(manta_ddp *d, manta_error *err)
{
  manta__buf table;
  int pattern = -1;
  manta__buf_init(&table, TABLE_MAX);
  manta_status st = write_table(d, &table);
  if (st == MANTA_OK)
    st = manta__buf_terminate(&table);
  if (st < 0)
    manta_error_set(err, st, "the list of parameters cannot be made: %s", manta_status_text(st));
  if (st == MANTA_OK)
    st = compare(d, manta__hash(table.data, table.len), &pattern, err);
  if (st == MANTA_OK && pattern >= 0)
    st = name_difference(d, &table, pattern, err);
  manta__buf_fini(&table);
  return st;
}

// --- what the parameters hold -------------------------------------------------------------------

// hash: of each parameter; becomes that of rank `pattern`. *first: ours that differs, or count.
static manta_status first_different(manta_ddp *d, uint64_t *hash, int pattern, uint64_t *first,
                                    manta_error *err)
{
  uint64_t *theirs = manta__calloc(d->count, sizeof *theirs);
  if (!theirs)
    return manta_error_set(err, MANTA_ENOMEM, "no memory to compare the parameters");
  memcpy(theirs, hash, d->count * sizeof *theirs);
  manta_status st = manta_comm_broadcast(d->comm, theirs, d->count, MANTA_U64, pattern, err);
  for (*first = 0; *first < d->count && hash[*first] == theirs[*first];)
    ++*first;
  manta__free(theirs);
  return st;
}

static manta_status name_replica(manta_ddp *d, uint64_t *hash, int pattern, manta_error *err)
{
  int n = manta_comm_size(d->comm), who = 0, differ = 0;
  uint64_t first = 0;
  MANTA_TRY(first_different(d, hash, pattern, &first, err));
  uint64_t *all = manta__calloc((size_t)n, sizeof *all);
  if (!all)
    return manta_error_set(err, MANTA_ENOMEM, "no memory to compare %d ranks", n);
  manta_status st = manta_comm_allgather(d->comm, &first, all, 1, MANTA_U64, err);
  for (int i = n - 1; i >= 0; i--)
    if (all[i] < d->count) {
      who = i;
      differ++;
    }
  if (st == MANTA_OK)
    st = manta_error_set(err, MANTA_ECORRUPT,
                         "replicas differ at sync %" PRId64 ": rank %d has another '%s' (parameter "
                         "%" PRIu64 " of %zu) than rank %d; %d of %d ranks differ",
                         d->steps, who, d->param[all[who]].name, all[who], d->count, pattern,
                         differ, n);
  manta__free(all);
  return st;
}

manta_status manta__ddp_check_replicas(manta_ddp *d, manta_error *err)
{
  int pattern = -1;
  uint64_t *hash = manta__calloc(d->count + 1, sizeof *hash);
  if (!hash)
    return manta_error_set(err, MANTA_ENOMEM, "no memory to compare the parameters");
  for (size_t i = 0; i < d->count; i++)
    hash[i] = manta__hash(d->param[i].data, (size_t)manta_tensor_bytes(&d->param[i]));
  manta_status st = compare(d, manta__hash(hash, d->count * sizeof *hash), &pattern, err);
  if (st == MANTA_OK && pattern >= 0)
    st = name_replica(d, hash, pattern, err);
  manta__free(hash);
  return st;
}

// --- where there is room for a thread -----------------------------------------------------------

// Are all masks the same, the ranks of a host share its CPUs; else each has some of its own.
manta_status manta__ddp_choose_overlap(manta_ddp *d, bool *overlap, manta_error *err)
{
  enum { FIRST, NOT_FIRST, LAST, NOT_LAST, SHARED, OWN, N };
  struct manta__host h;
  const manta_session *s = manta_session_current();
  int ranks = s ? manta_session_local_world_size(s) : manta_comm_size(d->comm);
  MANTA_TRY(manta__host_read(&h, "", err));
  bool quota = h.quota > 0 && h.quota < 2.0 * ranks;
  int first = h.cpu_ids[0], last = h.cpu_ids[h.cpu_count - 1];
  int32_t v[N] = {
      first, -first, last, -last, h.cpu_count >= 2 * ranks && !quota, h.cpu_count >= 2 && !quota};
  manta__host_fini(&h);
  MANTA_TRY(manta_comm_allreduce(d->comm, v, v, N, MANTA_I32, MANTA_MIN, err));
  bool same = v[FIRST] == -v[NOT_FIRST] && v[LAST] == -v[NOT_LAST];
  *overlap = manta_comm_size(d->comm) > 1 && v[same ? SHARED : OWN];
  return MANTA_OK;
}
