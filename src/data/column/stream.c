/* SPDX-License-Identifier: Apache-2.0
 *
 * data/column/stream.c - streams of Arrow arrays, in and out.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "data/column/arrow.h"

// --- in -----------------------------------------------------------------------------------------

static manta_status failed(struct manta__arrow_stream *s, int code, manta_error *err)
{
  const char *said = s->stream.get_last_error ? s->stream.get_last_error(&s->stream) : NULL;
  return manta_error_set(err, code == ENOMEM ? MANTA_ENOMEM : MANTA_EIO,
                         "the Arrow stream failed after %" PRId64 " rows: %s", s->rows,
                         said ? said : strerror(code));
}

manta_status manta__arrow_stream_open(struct manta__arrow_stream *s, struct ArrowArrayStream *in,
                                      manta_error *err)
{
  *s = (struct manta__arrow_stream){.stream = *in};
  in->release = NULL;
  int code = s->stream.get_schema(&s->stream, &s->theirs);
  if (code)
    s->theirs.release = NULL; // whatever was written there is nothing
  manta_status st =
      code ? failed(s, code, err) : manta__arrow_import_schema(&s->theirs, &s->schema, err);
  if (st < 0)
    manta__arrow_stream_close(s);
  return st;
}

manta_status manta__arrow_stream_next(struct manta__arrow_stream *s, manta_batch **out,
                                      manta_error *err)
{
  struct ArrowArray a = {0};
  int code = s->stream.get_next(&s->stream, &a);
  if (code)
    return failed(s, code, err);
  if (!a.release)
    return 0;
  manta_status st = manta__arrow_import(out, &a, &s->theirs, s->schema, s->pool, err);
  if (st < 0) {
    a.release(&a);
    return st;
  }
  (*out)->first = s->rows;
  s->rows += (*out)->rows;
  return (manta_status)1;
}

void manta__arrow_stream_close(struct manta__arrow_stream *s)
{
  if (s->theirs.release)
    s->theirs.release(&s->theirs);
  if (s->stream.release)
    s->stream.release(&s->stream);
  manta__schema_unref(s->schema);
  *s = (struct manta__arrow_stream){0};
}

// --- out ----------------------------------------------------------------------------------------

struct stream_body {
  struct manta__schema *schema;
  manta_status (*next)(void *ctx, manta_batch **out, manta_error *err);
  void (*close)(void *ctx);
  void *ctx;
  manta_error err;
};

static int code_of(manta_status st)
{
  return st == MANTA_ENOMEM ? ENOMEM : st == MANTA_EIO || st == MANTA_ENOENT ? EIO : EINVAL;
}

static int give_schema(struct ArrowArrayStream *s, struct ArrowSchema *out)
{
  struct stream_body *b = s->private_data;
  manta_status st = manta__arrow_export_schema(b->schema, out, &b->err);
  return st < 0 ? code_of(st) : 0;
}

static int give_next(struct ArrowArrayStream *s, struct ArrowArray *out)
{
  struct stream_body *b = s->private_data;
  manta_batch *batch = NULL;
  *out = (struct ArrowArray){0};
  manta_status st = b->next(b->ctx, &batch, &b->err);
  if (st == 1) {
    st = manta__arrow_export(batch, out, &b->err);
    manta_batch_destroy(batch);
  }
  return st < 0 ? code_of(st) : 0;
}

static const char *give_error(struct ArrowArrayStream *s)
{
  struct stream_body *b = s->private_data;
  return b->err.message[0] ? b->err.message : NULL;
}

static void release_stream(struct ArrowArrayStream *s)
{
  struct stream_body *b = s->private_data;
  b->close(b->ctx);
  manta__schema_unref(b->schema);
  manta__free(b);
  s->release = NULL;
}

manta_status manta__arrow_stream_export(struct ArrowArrayStream *out, struct manta__schema *schema,
                                        manta_status (*next)(void *ctx, manta_batch **out,
                                                             manta_error *err),
                                        void (*close)(void *ctx), void *ctx, manta_error *err)
{
  struct stream_body *b = manta__calloc(1, sizeof *b);
  if (!b)
    return manta_error_set(err, MANTA_ENOMEM, "no memory to export a stream");
  *b = (struct stream_body){manta__schema_ref(schema), next, close, ctx, MANTA_ERROR_INIT};
  *out = (struct ArrowArrayStream){give_schema, give_next, give_error, release_stream, b};
  return MANTA_OK;
}
