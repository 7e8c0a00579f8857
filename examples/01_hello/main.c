/* SPDX-License-Identifier: Apache-2.0
 *
 * 01_hello - a function goes in, its results come out.
 */
#include <stdio.h>
#include <unistd.h>

#include <manta/manta.h>

// Runs once in every worker.
static manta_status hello(manta_session *s, manta_value *result, manta_error *err)
{
  int rank = manta_session_rank(s);
  printf("hello, this is process %d\n", (int)getpid());
  return manta_value_set_int(result, rank * rank);
}

static manta_status run(manta_value *results, manta_error *err)
{
  manta_trainer_config cfg = MANTA_TRAINER_CONFIG_INIT;
  manta_trainer *t;
  cfg.workers = 4;
  cfg.show_all_output = true; // without it only rank 0 is heard
  MANTA_TRY(manta_trainer_create(&t, &cfg, err));
  manta_status st = manta_trainer_run(t, hello, NULL, results, err);
  manta_trainer_destroy(t);
  return st;
}

int main(int argc, char **argv)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_value results = {0};
  // Comes first: the workers are this program too, and do not come back from this call.
  if (manta_init(&argc, &argv) < 0)
    return 1;
  manta_status st = run(&results, &err);
  if (st < 0) {
    fprintf(stderr, "01_hello: %s\n", err.message);
    return st == MANTA_EPREEMPTED ? 75 : 1;
  }
  for (uint32_t rank = 0; rank < results.count; rank++)
    printf("rank %u returned %lld\n", rank,
           (long long)manta_value_as_int(manta_value_at(&results, rank), -1));
  manta_value_fini(&results);
  return 0;
}
