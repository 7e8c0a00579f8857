/* SPDX-License-Identifier: Apache-2.0 */
#include "event/record.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"

static const struct manta__event_info kinds[] = {
    {MANTA__EV_RUN, "run", "id name function build argv cwd config session ordinal",
     "the run begins; session: random id of the program's invocation, ordinal: from 1 in it"},
    {MANTA__EV_ATTEMPT, "attempt", "world from cause",
     "an attempt begins with `world` ranks after iteration `from`"},
    {MANTA__EV_ROW, "row", "", "a report of one rank: the row itself, with _training_iteration"},
    {MANTA__EV_REWIND, "rewind", "to", "rows after iteration `to` of earlier attempts are void"},
    {MANTA__EV_CKPT, "ckpt", "dir iteration bytes score", "a checkpoint is on disk"},
    {MANTA__EV_LOST, "lost", "rank host pid cause", "a worker was lost"},
    {MANTA__EV_NOTE, "note", "text", "a warning shown to the user"},
    {MANTA__EV_FINISH, "finish", "status message results files start",
     "the run ended; status: the name of a manta_status, \"OK\" for success"},
    {MANTA__EV_SAMPLE, "sample", "host workers",
     "what the workers of a host use: maps of rank, pid, cpu (CPUs), rss, gpu_memory, gpu_use"},
    {MANTA__EV_EXPERIMENT, "experiment",
     "argv cwd name metric maximize searcher scheduler samples seed space",
     "a driver begins an experiment, or goes on with it"},
    {MANTA__EV_TRIAL, "trial", "what config iteration from verdict state message result",
     "something happened to a trial of an experiment"},
};

const struct manta__event_info *manta__event_info(uint32_t kind)
{
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if ((uint32_t)kinds[i].kind == kind)
      return &kinds[i];
  return NULL;
}

uint64_t manta__record_hash(const struct manta__record *h, const void *payload)
{
  uint64_t seed = manta__hash(h, offsetof(struct manta__record, hash));
  return manta__hash_seed(payload, h->len, seed);
}

bool manta__record_head_ok(const struct manta__record *h)
{
  return h->magic == MANTA__LOG_MAGIC && h->zero == 0 && h->len <= MANTA__LOG_MAX_PAYLOAD;
}

void manta__segment_name(char name[MANTA__SEGMENT_NAME_MAX], int segment)
{
  if (segment == 1)
    snprintf(name, MANTA__SEGMENT_NAME_MAX, "run.log");
  else
    snprintf(name, MANTA__SEGMENT_NAME_MAX, "run.log.%d", segment);
}
