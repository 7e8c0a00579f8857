/* SPDX-License-Identifier: Apache-2.0
 *
 * Safetensors headers. The input is opened as a file, and once more as the header of one. Of what
 * is accepted every byte of every tensor is read, every name found, and a state made of it is laid
 * out and opened again.
 */
#include <stdlib.h>
#include <string.h>

#include "ckpt/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void write_again(const struct manta__st *s)
{
  manta_state state = {s->tensors, s->count, NULL};
  struct manta__layout l = {0};
  struct manta__st again = {0};
  if (manta__layout_make(&l, &state, NULL) != MANTA_OK || !manta__layout_fits(&l, &state))
    abort();
  uint8_t *file = calloc(1, l.header_len + l.data_len);
  memcpy(file, l.header, l.header_len);
  for (size_t i = 0; i < l.count; i++)
    if (l.bytes[i])
      memcpy(file + l.header_len + l.offset[i], s->tensors[i].data, l.bytes[i]);
  if (manta__st_open(&again, file, l.header_len + l.data_len, NULL) != MANTA_OK ||
      again.count != s->count)
    abort();
  for (size_t i = 0; i < again.count; i++)
    if (strcmp(again.tensors[i].name, s->tensors[i].name) != 0 ||
        (l.bytes[i] && memcmp(again.tensors[i].data, s->tensors[i].data, l.bytes[i]) != 0))
      abort();
  manta__st_fini(&again);
  manta__layout_fini(&l);
  free(file);
}

static void open_one(const uint8_t *file, size_t size)
{
  struct manta__st s = {0};
  manta_error err = MANTA_ERROR_INIT;
  manta_status st = manta__st_open(&s, file, size, &err);
  if (st == MANTA_ECORRUPT && err.message[0])
    return;
  if (st != MANTA_OK)
    abort();
  for (size_t i = 0; i < s.count; i++)
    if (manta__st_index_find(&s.index, s.tensors, s.tensors[i].name) != (int64_t)i)
      abort();
  write_again(&s);
  manta__st_fini(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  open_one(data, size);
  if (size < 2)
    return 0;
  // The first byte says how much of the rest is data.
  size_t tail = data[0] < size - 1 ? data[0] : size - 1, head = size - 1 - tail;
  uint8_t *file = malloc(size + 7);
  if (!file)
    return 0;
  for (int i = 0; i < 8; i++)
    file[i] = (uint8_t)((uint64_t)head >> 8 * i);
  memcpy(file + 8, data + 1, size - 1);
  open_one(file, size + 7);
  free(file);
  return 0;
}
