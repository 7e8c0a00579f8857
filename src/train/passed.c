/* SPDX-License-Identifier: Apache-2.0
 *
 * train/passed.c - what comes with a job: place, config and payload; and a result that goes back as
 * bytes behind a descriptor.
 */
#include <stdio.h>
#include <string.h>

#include "group/worker.h"
#include "sys/shm.h"
#include "sys/sock.h"
#include "train/session.h"

int manta_session_local_rank(const manta_session *s)
{
  return manta__session_job(s)->local_rank;
}
int manta_session_world_size(const manta_session *s)
{
  return manta__session_job(s)->world;
}
int manta_session_local_world_size(const manta_session *s)
{
  return manta__session_job(s)->local_world;
}
int manta_session_node_rank(const manta_session *s)
{
  return manta__session_job(s)->node_rank;
}
const char *manta_session_run_dir(const manta_session *s)
{
  return manta_value_as_string(manta_value_get(&s->job->spec, "dir"), NULL);
}

int manta_session_attempt(const manta_session *s)
{
  return (int)manta__session_job(s)->id.attempt;
}

int64_t manta_session_config_int(const manta_session *s, const char *key, int64_t dflt)
{
  return manta_value_as_int(manta_value_get(manta_session_config(s), key), dflt);
}
double manta_session_config_real(const manta_session *s, const char *key, double dflt)
{
  return manta_value_as_real(manta_value_get(manta_session_config(s), key), dflt);
}
bool manta_session_config_bool(const manta_session *s, const char *key, bool dflt)
{
  return manta_value_as_bool(manta_value_get(manta_session_config(s), key), dflt);
}
const char *manta_session_config_string(const manta_session *s, const char *key, const char *dflt)
{
  return manta_value_as_string(manta_value_get(manta_session_config(s), key), dflt);
}

const void *manta_session_payload(const manta_session *s, size_t *bytes)
{
  const struct manta__job *job = manta__session_job(s);
  *bytes = job->payload_bytes;
  return job->payload;
}

static bool is_suffix(const char *s)
{
  size_t n = s ? strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789") : 0;
  return n > 0 && n < MANTA__RESULT_KIND && s[n] == 0 && strcmp(s, MANTA__RESULT_VALUE) != 0;
}

manta_status manta_session_result(manta_session *s, int fd, const char *kind, manta_error *err)
{
  struct manta__job *job = manta__session_job(s);
  int given;
  if (!is_suffix(kind))
    return manta_error_set(err, MANTA_EINVAL, "the kind of a result is the suffix of a file");
  MANTA_TRY(manta__shm_from(MANTA__RESULT_FILE, fd, &given, err));
  manta__fd_close(&job->result_fd);
  job->result_fd = given;
  snprintf(job->result_kind, sizeof job->result_kind, "%s", kind);
  return MANTA_OK;
}
