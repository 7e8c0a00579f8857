/* SPDX-License-Identifier: Apache-2.0
 *
 * ckpt/write.c - a state as a checkpoint directory of its own, outside of any run.
 *
 * The state goes through a slot of this process, as it does in a run: what is checked there is
 * checked here, and both leave the same files.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "ckpt/ckdir.h"
#include "ckpt/slot.h"
#include "sys/file.h"

#define NAME "checkpoint" /* in the manifest: it has no number */

static manta_status put_manifest(int dir, const struct manta__manifest *m, manta_error *err)
{
  char *text = NULL;
  size_t len = 0;
  MANTA_TRY(manta__manifest_write(m, NULL, &text, &len, err));
  manta_status st = manta__file_replace(dir, MANTA__CKPT_MANIFEST, text, len, err);
  manta_free(text);
  return st;
}

static manta_status put_slot(int dir, int fd, manta_error *err)
{
  const uint8_t *base;
  size_t size;
  struct manta__slot_meta meta;
  struct manta__manifest m = {.name = NAME, .world = 1, .file_count = 2};
  MANTA_TRY(manta__slot_map(fd, &base, &size, &meta, err));
  m.bytes = meta.tensors_len + meta.value_len;
  m.wall_ns = meta.wall_ns;
  manta_status st = manta__ckdir_put(dir, MANTA__CKPT_TENSORS, base + meta.tensors_off,
                                     meta.tensors_len, &m.files[0], err);
  if (st == MANTA_OK)
    st = manta__ckdir_put(dir, MANTA__CKPT_VALUE, base + meta.value_off, meta.value_len,
                          &m.files[1], err);
  munmap((void *)(uintptr_t)base, size);
  return st < 0 ? st : put_manifest(dir, &m, err);
}

static manta_status put_state(int dir, const manta_state *state, manta_error *err)
{
  struct manta__slots slots;
  struct manta__snapshot snap = {.world = 1};
  int index;
  manta__slots_init_one(&slots);
  manta_status st =
      manta__slots_save(&slots, state, &snap, manta__deadline(0), NULL, NULL, &index, err);
  if (st == MANTA_OK)
    st = put_slot(dir, slots.slot[index].fd, err);
  manta__slots_fini(&slots);
  return st;
}

manta_status manta_checkpoint_write(const char *dir, const manta_state *state, manta_error *err)
{
  int fd;
  MANTA_TRY(manta__dir_make(dir, &fd, err));
  manta_status st = faccessat(fd, MANTA__CKPT_MANIFEST, F_OK, 0) == 0
                        ? manta_error_set(err, MANTA_EINVAL, "%s has a checkpoint already", dir)
                        : put_state(fd, state, err);
  close(fd);
  return st;
}
