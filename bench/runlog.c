/* SPDX-License-Identifier: Apache-2.0
 *
 * bench/runlog.c - the writer's own figures: bytes and seconds of each checkpoint in RUN/run.log.
 *
 *   runlog RUN
 */
#include <fcntl.h>
#include <unistd.h>

#include "bench.h"
#include "event/log.h"

static void print_checkpoint(const uint8_t *payload, size_t len)
{
  manta_value v = {0};
  manta_error err = MANTA_ERROR_INIT;
  bench_check(manta_value_unpack(&v, payload, len, &err), "a record", &err);
  bench_sample("bytes", manta_value_as_real(manta_value_get(&v, "bytes"), 0));
  bench_sample("seconds", manta_value_as_real(manta_value_get(&v, "seconds"), 0));
  manta_value_fini(&v);
}

int main(int argc, char **argv)
{
  manta_error err = MANTA_ERROR_INIT;
  manta__log_reader *log;
  struct manta__record head;
  const uint8_t *payload;
  int rc, dir = argc == 2 ? open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
  if (dir < 0)
    bench_die("usage: runlog RUN");
  bench_check(manta__log_reader_open(&log, dir, &err), argv[1], &err);
  while ((rc = manta__log_next(log, &head, &payload, &err)) == 1)
    if (head.kind == MANTA__EV_CKPT)
      print_checkpoint(payload, head.len);
  bench_check((manta_status)rc, argv[1], &err);
  manta__log_reader_close(log);
  close(dir);
  return 0;
}
